"""The parts that Warpbook's scripts share. Import what you need from the module that knows it."""
