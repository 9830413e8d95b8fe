"""Runs a test program once for each seed of the fake driver's scheduler, and names those that it fails with.

usage: seeds.py FIRST LAST COMMAND [ARGUMENT...]
"""
import concurrent.futures
import os
import subprocess
import sys

AT_ONCE = 5  # programs that wait for each other's threads more than they compute


def main(first, last, command):
    def run(seed):
        return seed, subprocess.run(command, env={**os.environ, "FAKECUDA_SEED": str(seed)}, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, errors="replace")

    failed = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for seed, done in pool.map(run, range(int(first), int(last) + 1)):
            if done.returncode == 0:
                continue
            failed.append(seed)
            print("FAKECUDA_SEED=%d %s: exit code %d" % (seed, " ".join(command), done.returncode))
            print(done.stdout[-4000:])
    print("seeds %s to %s: %d failed %s" % (first, last, len(failed), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
