"""Measuring recipes that criteria name under ``measure``.

A recipe says what is started and which value is read, precisely enough to repeat it by hand. Sizes are plain bytes: the
meaning of ``1024KiB`` depends on fio's ``kb_base``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackproof.core.metrics import NOT_YET


@dataclass(frozen=True, slots=True)
class Recipe:
    id: str
    how: str
    source: str
    """Where the parameters come from."""
    benchmark: str
    """The kit's benchmark that follows it, or ``not yet``."""


RECIPES: dict[str, Recipe] = {
    r.id: r
    for r in (
        Recipe("fio-sequential",
               "fio on all clients at once (client/server; a single client by itself): libaio, direct=1, bs=1048576, "
               "time_based, ramp 30 s, run 180 s; writes first, with end_fsync=1; bw_bytes of each client",
               "wekatester four corners; ai-benchmark-util fio1.job", "storage"),
        Recipe("fio-random",
               "as fio-sequential: randread, bs=4096, numjobs=64 iodepth=8, tausworthe64, "
               "norandommap; iops and lat_ns.mean; latency leg with numjobs=1 iodepth=1",
               "wekatester four corners", "storage"),
        Recipe("fio-shared-file",
               "fio-sequential with the first client's file for all clients",
               "Teraflops and Engineering (Dell EMC)", "storage"),
        Recipe("fio-knee",
               "closed loop: iodepth × numjobs of every client from 1 to 1024, chosen by a search for the load where "
               "the 99th percentile has doubled, until the rate grows no more; open loop: rate_iops from 5 to 100 % of "
               "that rate with Poisson arrivals; every step must satisfy Little's law within 5 %",
               "Little's law; our proposal", "storage"),
        Recipe("fio-synced",
               "as fio-sequential: sequential writes with fsync=1; iops of each client, and as "
               "many fsyncs as writes", "fio's documentation, fsync", "storage"),
        Recipe("fio-integrity",
               "every client writes one file with verify=crc32c, verify_interval=4096; caches are dropped, it reads "
               "the file with verify_fatal=1; caches are dropped, another client reads it; every damaged place counts",
               "fio's documentation, verify", "storage"),
        Recipe("fio-connections",
               "fio-sequential from one client after another, on a mount beside the declared one (mount -t nfs -o "
               "vers=4.2|4.1|3, nconnect=1, then nconnect=n) in a version of NFS that the client does not use with "
               "this server: within one, Linux shares connections; the counters of all connections prove it",
               "How To Shorten Deep Learning Training Times (WekaIO); kernel nfs(5), nconnect", "storage"),
        Recipe("fio-transports",
               "as fio-connections, with proto=tcp, then proto=rdma, one mount after the other in the same version; "
               "port of TCP: that of the architecture's other storage of this server and export, otherwise 2049",
               "kernel nfs(5), proto", "storage"),
        Recipe("fio-mounts",
               "as fio-connections, over one mount (vers=3, nconnect=1, nosharecache), then over one of each address "
               "of the server, among which fio's processes are divided; the counters prove that each has a connection "
               "of its own, and that no other mount used these in the run",
               "Dell EMC Isilon and NVIDIA DGX-1 (16 mounts on each client); kernel nfs(5)", "storage"),
        Recipe("small-files",
               "every process of every client creates files of 113 kB; caches are dropped; from one moment on each is "
               "opened, read and closed; then the same bytes in one file of each process, in parts of the same size",
               "Teraflops and Engineering (Dell EMC)", "storage"),
        Recipe("mdtest",
               "every process of every client creates, looks at (stat), reads and removes files of 4 kB in a tree, "
               "each from one moment on after caches were dropped", "IO500, mdtest", "storage"),
        Recipe("gdsio",
               "gdsio -x 0 -I 0 -i 1048576 -w <threads> -s <bytes> -T <seconds> on every GPU of a node at once, with "
               "cuFile's compatibility mode refused; files written before (-I 1), caches dropped; the sum of all GPUs",
               "NVIDIA GPUDirect Storage, Benchmarking and Configuration Guide", "storage"),
        Recipe("fio-drive",
               "as root on each drive's block device, one drive of a node after another: fio --readonly "
               "--allow_file_create=0 --rw=read --direct=1 --ioengine=libaio --bs=1048576 --iodepth=<n> --time_based "
               "--runtime=<s>, from the first byte; sectors of /sys/block/*/stat before and after; blocks that were "
               "never written come from the drive's controller, so a drive in use may be slower than an empty one",
               "fio's documentation, --readonly", "drives"),
        Recipe("osd-bench",
               "ceph tell osd.N bench <bytes> <bytes of a block>, one OSD of the cluster after another: the OSD writes"
               " objects of its own through its store and removes them; sectors of its drive before and after",
               "Ceph's documentation, Monitoring OSDs; src/osd/OSD.cc", "osds"),
        Recipe("dlio",
               "mpirun -np <accelerators> [--host <clients>] dlio_benchmark workload=<config> … where it is installed, "
               "as mlpstorage calls it: emulated accelerators, at least 500 steps an epoch, data set of 5 times the "
               "clients' memory, warm-up and 5 runs; its summary.json, and the mounts' counters for the bytes of "
               "every epoch and client", "MLPerf Storage v2.0 submission guidelines", "ingest"),
        Recipe("train-ingest",
               "workers on all nodes read, decode and crop from one moment on, accelerators are emulated (each batch "
               "takes the model's known time) or real (torchvision's model under torchrun, nvidia-smi every second); "
               "data from storage (cold), from memory and synthetic; bytes by mount and port counters, processors "
               "every second", "MLPerf Storage; ai-benchmark-util; our proposal", "ingest"),
        Recipe("train-epochs",
               "train-ingest for two epochs or more, no cache cleared between them (only_local_cache: page caches), "
               "bytes of each epoch by NIC and mount counters, reads of a local cache by the kernel's; before the "
               "first epoch chmod changes the times by which FS-Cache knows a file; once more with the data in each "
               "format named",
               "Cluster Considerations (Hitachi Vantara)", "ingest"),
        Recipe("train-ports",
               "train-ingest from the storage, cold, once for each rate of the clients' ports: a token bucket (tc tbf) "
               "for each direction, on virtual machines only, read back from the kernel after the run",
               "Cluster Considerations (Hitachi Vantara); tc-tbf(8)", "ingest"),
        Recipe("dataset-files", "bytes of all files of the data set and samples, as its index counts them; every read "
               "compares size and time of a file with the index", "ai-benchmark-util", "ingest"),
        Recipe("protocol-ingest",
               "a tree of files with known hashes written through the protocol (a mount, smbclient -c mput, WebHDFS "
               "op=CREATE), caches dropped, then hashed over every mount of every client",
               "Accelerating AI with Isilon (Dell EMC)", "ingest"),
        Recipe("train-placement",
               "train-ingest with the same 8 GPUs on 1, 2 and 4 nodes, same global batch, cold each time",
               "Scaling Production AI (WekaIO)", "ingest"),
        Recipe("inference-stream", "train-ingest with the rate of forward passes; with arrivals_per_s an open "
               "stream, whose latency counts from the moment of arrival", "HPE Deep Learning Cookbook", "ingest"),
        Recipe("join-node", "every client mounts the storage once more, beside the declared mount, and reads; bytes on "
               "its drives and in its file systems before and after, and in a while without a join",
               "Scaling Production AI (WekaIO)", "storage"),
        Recipe("container-read", "fio-sequential inside an unprivileged container with the storage mounted read-only",
               "Teraflops and Engineering (Dell EMC)", NOT_YET),
        Recipe("mixed-tenants", "train-ingest and inference-stream on the same nodes at the same time, each "
               "compared with itself alone", "Teraflops and Engineering (Dell EMC)", "ingest"),
        Recipe("storage-beside-collectives",
               "fio-sequential alone, then all_reduce or another operation over the same nodes alone, then both at "
               "once, fio from its first read to its last beside the collective; the sum of all clients, and the mean "
               "of the calls that began and ended while all clients read, by one node's clock",
               "our proposal", "storage"),
        Recipe("checkpoint", "every rank writes its part, fsync; time of the slowest rank, 5 writes and 5 reads, "
               "caches cleared", "MLPerf Storage v2.0 checkpointing", "storage"),
        Recipe("nccl-node",
               "all_reduce_perf -b <least> -e <most> -f 2 -g <GPUs> -n 20 -w 5 -c 1 on all nodes at once, each "
               "algorithm asked for by name (NCCL_ALGO); busbw at the named size, never the average over sizes",
               "nccl-tests doc/PERFORMANCE.md", "collectives"),
        Recipe("nccl-guest",
               "nccl-node with a rank for each GPU while the domain is shut off; virsh start, which gives it all GPUs; "
               "the same command in it over ssh; virsh shutdown, or destroy after its time; same GPUs, domain and NCCL",
               "Cluster Considerations (Hitachi Vantara)", "collectives"),
        Recipe("nccl-rack",
               "the same over all nodes, one rank a GPU, at least 4 nodes (two nodes take a tree and exceed the wire)",
               "nccl-tests issue 196", "collectives"),
        Recipe("nccl-rail",
               "the same split by local rank (NCCL_TESTS_SPLIT): rails at once, no traffic inside nodes; once for each "
               "rail, whose GPU comes first (CUDA_VISIBLE_DEVICES), because the table shows the time of rank 0 (-a 0)",
               "nccl-tests src/common.cu", "collectives"),
        Recipe("mpi-collectives", "the same operations with MPI on processors, one rank a node",
               "nccl-tests definitions", "collectives"),
        Recipe("group-testing",
               "sets of nodes run one all-to-all each, in parallel (alltoall_perf -b <bytes> -e <bytes> -n <n>, "
               "NCCL_MNNVL_ENABLE=0): what reaches the least rate of every node on each rail clears its nodes, the "
               "nodes of what fails are searched with cleared partners", "our proposal", "links"),
        Recipe("ping-pairs",
               "ping -n -q -c 200 -i 0.005 -W 2 -I <port of the rail> between every pair of nodes, each node in one "
               "pair at a time: packets without an answer, and the fastest round trip", "our proposal", "links"),
        Recipe("rdma-write", "ib_write_bw -s <block> -F --report_gbits -D <seconds> between every pair; ib_write_lat; "
               "where a criterion asks, ib_write_bw -b and ib_read_lat; numactl, or taskset without it, binds each end "
               "to its adapter's NUMA node",
               "perftest; NGC-Ready multinode", "links"),
        Recipe("rdma-write-gpu",
               "ib_write_bw -s 8388608 -D <seconds> --use_cuda_bus_id <GPU nearest to the adapter> [--use_cuda_dmabuf] "
               "from every adapter to the same rail of another node; where a criterion asks, both ways (-b); "
               "ib_read_lat -n <iterations> between the same memories; bound as in rdma-write",
               "Azure azurehpc-health-checks", "links"),
        Recipe("rdma-write-all-rails",
               "rdma-write or rdma-write-gpu from all adapters of a node at once to the same rails of another node, "
               "one way or both ways, or ib_read_lat -D; each bound to its NUMA node; begin and end of every process "
               "on both nodes prove that all were busy together for at least half of the duration", "our proposal",
               "links"),
        Recipe("iperf3", "iperf3 -c <peer> -B <own address> -P <streams> -t <seconds> -J; bits received", "iperf3",
               "links"),
        Recipe("iperf3-fan-in",
               "iperf3 from all clients at once to the addresses that their mounts of the storage use, bound to the "
               "mount's rail; bits received, less what a client's later start gave the others",
               "Dell HPC Innovation Lab F800 white paper", "links"),
        Recipe("nvbandwidth",
               "CUDA_DEVICE_ORDER=PCI_BUS_ID nvbandwidth -j -i 3 -t host_to_device_memcpy_ce device_to_host_memcpy_ce "
               "device_to_device_memcpy_read_ce, ten times; the GPU's cell, between GPUs the smallest cell of its row",
               "NVIDIA nvbandwidth", "gpu"),
        Recipe("dcgm-diag", "dcgmi diag -r memory_bandwidth,targeted_stress,… -j with the tests of the profile, each "
               "as long as DCGM's own default", "NVIDIA DCGM", "gpu"),
        Recipe("stream-triad",
               "a = b + q c of three arrays of 2 GiB on all GPUs of a node at once (torch.add), bytes of the arrays "
               "over the time of each repetition; DCGM's memory_bandwidth runs the same and prints no figure",
               "STREAM (McCalpin); DCGM reference, memory bandwidth plugin", "gpu"),
        Recipe("matmul-sweep",
               "dense products of normally distributed matrices (torch.mm) on all GPUs of the node at once: a sweep of "
               "shapes, then repetitions of the fastest, each product timed with the L2 cache overwritten before it",
               "ml-engineering compute/accelerator (MAMF)", "gpu"),
        Recipe("sizing-model", "`rackproof size` with the measured stages (processor time of the leg from memory, "
               "bandwidth of the leg that decodes nothing), against the measured rate",
               "Teraflops and Engineering (Dell EMC)", "ingest"),
    )
}  # fmt: skip
