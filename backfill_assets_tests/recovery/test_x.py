import time
def test_ref(workshop, request):
    t=time.monotonic()
    y=request.getfixturevalue("year")
    print(len(y), time.monotonic()-t)
    from backfill_assets_tests.recovery.watcher import Watcher
    import random
    u=request.getfixturevalue("undisturbed")
    w=Watcher(u, {p: len(c) for p,c in y.items()}, random.Random(1))
    t=time.monotonic(); w.look(); print(time.monotonic()-t); w.look(); print(time.monotonic()-t, w.wrong[:3], w.verified)
