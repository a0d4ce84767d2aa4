package hostile

// lieRows are one row for each role that breaks the protocol: it does so by itself, from its start on.
var lieRows = liars([]Row{
	{ID: "hs-binary", Attempt: "bytes in place of the handshake line", Expect: "Failed or Backoff"},
	{ID: "hs-endless", Attempt: "a handshake line of 200 MB", Expect: "Failed or Backoff"},
	{ID: "hs-silent", Attempt: "no handshake line", Expect: "Failed or Backoff"},
	{ID: "hs-numbers", Attempt: "numbers that are none in the handshake line", Expect: "Failed or Backoff"},
	{ID: "hs-network", Attempt: "an address of its choice, to which the core is to connect", Expect: "Failed or Backoff"},
	{ID: "hs-elsewhere", Attempt: "the path of another's socket, to which the core is to connect", Expect: "Failed or Backoff"},
	{ID: "hs-link", Attempt: "a link to another's socket in place of its own", Expect: "Failed or Backoff"},
	{ID: "hs-newlines", Attempt: "escapes in the handshake line", Expect: "Failed or Backoff"},
	{ID: "hs-garbage", Attempt: "no HTTP/2 on the role socket", Expect: "Failed or Backoff"},
	{ID: "hs-frames", Attempt: "broken HTTP/2 on the role socket", Expect: "Failed or Backoff"},
	{ID: "hs-hole", Attempt: "a role socket that never answers", Expect: "Failed or Backoff"},
	{ID: "rp-start", Attempt: "no answer to Start", Expect: "Failed or Backoff"},
	{ID: "rp-problems", Attempt: "a refusal of 800 kB, with escapes", Expect: "Failed or Backoff"},
	{ID: "st-flood", Attempt: "status messages as fast as they go, each with endpoints and values of 28 KiB that are others", Expect: "the core takes note of a few; the cluster shows what fits of what the node publishes", Judged: byPublished},
	{ID: "st-large", Attempt: "the largest permitted endpoints and values as fast as they go", Expect: "the core takes note of a few; the cluster shows none of its values, and what others publish", Judged: byPublished},
	{ID: "st-huge", Attempt: "a reason of 32 MiB", Expect: "Failed or Backoff"},
	{ID: "st-many", Attempt: "10,000 endpoints and values", Expect: "Failed or Backoff"},
	{ID: "st-other", Attempt: "the status of another role", Expect: "Failed or Backoff; the other is Ready"},
	{ID: "st-states", Attempt: "states that there are not, escapes for terminals", Expect: "Failed or Backoff"},
	{ID: "st-wire", Attempt: "bytes that are no message", Expect: "Failed or Backoff"},
	{ID: "hl-never", Attempt: "no answer to CheckHealth", Expect: "ended when its time is up"},
	{ID: "hl-text", Attempt: "an error of 1 MiB, with escapes, from CheckHealth", Expect: "ended when its time is up"},
	{ID: "mt-huge", Attempt: "64 MiB of metrics", Expect: "the node's metrics are whole and bounded without them", Judged: byMetrics},
	{ID: "mt-slow", Attempt: "no answer to GetMetrics", Expect: "the node's metrics are whole and bounded without them", Judged: byMetrics},
	{ID: "mt-wrong", Attempt: "metrics that are none, and in the name of others", Expect: "the node's metrics are whole and bounded without them", Judged: byMetrics},
	{ID: "mt-many", Attempt: "40,000 series", Expect: "the node's metrics are whole and bounded without them", Judged: byMetrics},
	{ID: "lg-message", Attempt: "log lines that break parsers", Expect: "the log can be read"},
	{ID: "lg-endless", Attempt: "a log line of 256 MiB", Expect: "the log is bounded"},
	{ID: "lg-cut", Attempt: "a log that is cut, rewound, and has a hole of 8 TiB", Expect: "the log can be read"},
})

func liars(list []Row) []Row {
	for i := range list {
		list[i].Role = list[i].ID
	}
	return rows("Crashing or stalling the core", "", byCore, nil, list)
}

var exhaustRows = rows("Exhaustion", "glutton", byCore, nil, []Row{
	{ID: "exhaust.memory", Attempt: "2 GiB of memory", Expect: "refused, or the role is ended for it", Needs: []string{memory}},
	{ID: "exhaust.shared", Attempt: "1 GiB of shared memory that outlives the role", Expect: "refused, or the role is ended for it; nothing is left", Needs: []string{memory, ipc}},
	{ID: "exhaust.runtime", Attempt: "1 GiB on the tmpfs of the runtime directory", Expect: "refused, or the role is ended for it; nothing is left", Needs: []string{memory}},
	{ID: "exhaust.pipes", Attempt: "1 GiB in pipes", Expect: "refused, or the role is ended for it"},
	{ID: "exhaust.processes", Attempt: "2,000 processes", Expect: "refused; the victim can start one", Needs: []string{processes}},
	{ID: "exhaust.threads", Attempt: "2,000 threads", Expect: "refused; the victim can start a process", Needs: []string{processes}},
	{ID: "exhaust.cpu", Attempt: "32 busy processes", Expect: "the node and the victim work on"},
	{ID: "exhaust.descriptors", Attempt: "100,000 descriptors, 20,000 in flight", Expect: "refused"},
	{ID: "exhaust.inotify", Attempt: "5,000 inotify instances", Expect: "refused; the victim gets one", Needs: []string{ownUID}},
	{ID: "exhaust.queues", Attempt: "300 message queues", Expect: "refused; nothing is left"},
	{ID: "exhaust.stderr", Attempt: "300 MB of log", Expect: "what is kept is bounded"},
	{ID: "exhaust.stdout", Attempt: "300 MB on standard output", Expect: "nothing is kept, and the role does not block"},
})

const notUsedUp = "refused or made to wait; the store is the same process with less than half of its memory, and the victim's writes are acknowledged"

var useRows = rows("Using up the store", "glutton", byStoreOutside, nil, []Row{
	{ID: "use.nested", Attempt: "64 × 64 reads of 1 MiB in one transaction", Expect: notUsedUp},
	{ID: "use.unread", Attempt: "24 answers of 100 MiB each that it does not take", Expect: notUsedUp},
	{ID: "use.watches", Attempt: "30,000 watches", Expect: notUsedUp},
	{ID: "use.filters", Attempt: "a million filters on one watch", Expect: notUsedUp},
	{ID: "use.past", Attempt: "watch 30 MiB of history again and again, and read none of it", Expect: notUsedUp},
	{ID: "use.previous", Attempt: "write two keys 3,000 times, and watch that from the past with previous values, again and again", Expect: notUsedUp},
	{ID: "use.old", Attempt: "write 60 keys 600 times, and read them as they were hundreds of times in a transaction that writes, and without, all the time", Expect: notUsedUp},
	{ID: "use.stream", Attempt: "streamed ranges that it does not take", Expect: notUsedUp},
	{ID: "use.rewrite", Attempt: "have 1 MiB written anew for some bytes", Expect: notUsedUp},
	{ID: "use.applied", Attempt: "read 100 MiB, and 7 MiB all the time, in transactions that write", Expect: notUsedUp},
	{ID: "use.history", Attempt: "overwrite 1 MiB with four writers, all the time", Expect: notUsedUp},
	{ID: "use.leases", Attempt: "grant, revoke and list leases, 200 at a time, all the time", Expect: notUsedUp},
	{ID: "use.count", Attempt: "count 10,000 keys 372 times in a transaction that writes, or in nested ones, 32 at a time, all the time", Expect: notUsedUp},
	{ID: "use.delete", Attempt: "write 20,000 keys, and delete them at once, all the time", Expect: notUsedUp},
	{ID: "use.lease", Attempt: "put 20,000 keys on one lease, write them anew, and end it, all the time", Expect: notUsedUp},
	{ID: "use.alive", Attempt: "keep a lease with 500 keys alive, and ask for it, 32 at a time, all the time", Expect: notUsedUp},
	{ID: "use.quota", Role: "stinted", Attempt: "use up its quota, and write in the place of 3 MiB what is too much, 32 at a time, all the time", Expect: notUsedUp},
	{
		ID: "use.refused", Attempt: "as many calls as it may have, which never end, and 200,000 more, which may take years", Expect: notUsedUp + "; nothing is left of what was refused",
		Growth: 128 << 10, // a server that kept something of each has some 200 MiB more
	},
})

const clusterServed = "another operator's changes are made meanwhile; the curator is the same process with less than half of its memory, and the node is heard"

// clusterRows are performed by callers from outside, and by no role.
var clusterRows = rows("Using up the cluster", "", byCluster, nil, []Row{
	{ID: "cluster.strangers", Attempt: "64 connections with keys that nobody knows, with 64 calls each, half of which never end", Expect: "refused; " + clusterServed},
	{ID: "cluster.operator", Attempt: "an operator who changes labels and a role of a node, whose record has 200 KiB, all the time", Expect: "made to wait; " + clusterServed},
	{ID: "cluster.audit", Attempt: "a viewer who reads and is refused 200 times", Expect: "what it did first is in the audit log, and few of its calls have entries of their own; " + clusterServed},
})

var outliveRows = rows("Outliving its stop", "stubborn", byOutside, nil, []Row{
	{ID: "outlive.cgroup", Attempt: "leave its control group, make others, change its bounds", Expect: refused, Judged: byWord, Needs: []string{landlock}},
	{
		ID: "outlive.children", Expect: "no process of it is left", Needs: []string{ownUID},
		Attempt: "orphans, sessions, other names and environments, a chain of processes; SIGTERM ignored and the stop held",
	},
	{
		ID: "outlive.store", Role: "outcast", Judged: byStore, Attempt: "go on using an open connection to the store when its ConsensusUser is withdrawn",
		Expect: "the connection ends within a second, however long the role holds its stop",
	},
	{
		ID: "outlive.removed", Role: "lingerer", Judged: byStore, Attempt: "go on using an open connection to the store when it is removed from the node",
		Expect: "the last use is before the role is gone, and that is after its grace",
	},
})

var diskRows = rows("Disk", "glutton", byReturn, nil, []Row{
	{ID: "exhaust.inodes", Attempt: "as many files as it gets", Expect: "refused or ended; the node comes back by itself, and the victim loses no write"},
	{ID: "exhaust.disk", Attempt: "fill the disk", Expect: "refused or ended; the node comes back by itself, and the victim loses no write"},
})
