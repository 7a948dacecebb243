"""`python -m warpbook` is the command `warpbook`."""

from warpbook.command_line import main

main()
