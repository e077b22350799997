"""What the product costs, beside what people would use instead and the limit of the machine.

``make bench`` runs every comparison, ``make bench ONLY=scan`` one. The candidates of a comparison
do the same work in one process, in turns (A B A B), so that a busy machine slows both.
"""
