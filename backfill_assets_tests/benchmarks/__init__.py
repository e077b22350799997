"""What the product costs, beside what people would use instead and the limit of the machine.

``make bench`` runs every comparison, ``make bench ONLY=scan`` one; the table goes to
``.backfill/benchmarks.md``, every sample to ``.backfill/benchmarks.json``. The candidates of a
comparison do the same work in turns (A B A B), so that a busy machine slows all of them: ratios
can be trusted, seconds only where nothing else ran.

A comparison is a module with ``run(bench)``, which returns its figures. The work that they share is
in ``work``, the peers in ``peers``. `COMPARISONS` in ``__main__`` names them all.
"""
