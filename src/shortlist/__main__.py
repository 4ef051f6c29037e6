"""`python -m shortlist`."""

from shortlist.cli import main

main()
