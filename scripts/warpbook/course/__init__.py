"""The course ECE408: submissions, what a rule can grade, and the course's own times."""
