"""torchrun: starts the processes of one node."""

import os
import subprocess
import sys


def main():
    options = dict(word[2:].split("=") for word in sys.argv[1:] if word.startswith("--"))
    script = [word for word in sys.argv[1:] if not word.startswith("--")]
    each, node = int(options["nproc-per-node"]), int(options["node-rank"])
    own = {"MASTER_ADDR": options["master-addr"], "MASTER_PORT": options["master-port"]}
    own["WORLD_SIZE"] = str(each * int(options["nnodes"]))
    ranks = [
        subprocess.Popen(
            [sys.executable, *script],
            env=os.environ | own | {"RANK": str(node * each + local), "LOCAL_RANK": str(local)},
        )
        for local in range(each)
    ]
    sys.exit(max(rank.wait() for rank in ranks))
