"""How fast, how fair, how cheap: measured beside the peers and the floor, in one run on one machine.

``python -m bench [names…] [--json] [--quick] [--write]``. Only ratios travel from machine to machine; absolute
figures are shown so that the ratios can be checked. Nothing here is a test: a figure that is missed is printed as
missed, no more.
"""
