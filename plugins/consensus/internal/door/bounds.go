package door

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a ConsensusUser may have under way at a time, over all of its connections: without bounds one role could use up the memory of the store, which is
// everybody's. All of them but the cluster user are held to these. The measure is the API server of Kubernetes, the busiest client there is, with 100 nodes:
// it never meets one of them. docs/decisions/0062-bounds-of-use.md has them in one table.
const (
	// maxAnswers is how many bytes of answers a user may have that were not sent yet, and so also how large one answer may be. The API server reads lists in
	// pages of 10,000 keys; 100 nodes have 11,000 pods at most, and most have less than 10 KiB. An answer is in memory twice while it is encoded.
	maxAnswers = int64(128 << 20)
	// largeAnswer is from where on an answer waits in line for its room. A key and its value are less.
	largeAnswer = int64(4 << 20)
	// readPace is how many bytes of answers a user may be given a second over a longer time, and maxAnswers at once before: what is read is encoded by the processors on which everybody's
	// writes wait. The API server reads 300 MiB when it starts, with 100 nodes, and what it serves from then on is in its memory.
	readPace = int64(64 << 20)
	// maxOperations is how many operations and comparisons a transaction may have, with all that is nested in it: as many as etcd allows in one that nests
	// nothing, which are 128 comparisons and 128 operations in each branch. etcd counts each level by itself, and 64 × 64 are 4,096 reads. The API
	// server has three.
	maxOperations = 3 * 128
	// maxStreams is how many calls a connection may have under way. A client that opens more waits; nothing is refused. The API server has a client per
	// resource, each with its watches on one stream, and a stream for each read or write: dozens.
	maxStreams = 256
	// maxConnections is how many connections an instance may have. The API server has one per resource, of which there are about a hundred, and one more
	// for each version of a resource that others define, of which there are hundreds. Each takes two buffers of 32 KiB and two goroutines.
	maxConnections = 640
	// maxCalls is how many calls a user may have begun. The API server handles 600 requests at a time, and has a watch per connection. One that waits for
	// its turn may hold maxWaiting of its request. gRPC widens that by itself for what is being read, and would have made up to 16 MiB of it for all.
	maxCalls   = 2048
	maxWaiting = 64 << 10
	// maxTurns is how many reads are carried out at a time, and how many writes; others wait before their request is read, which may have 2 MiB. With one
	// that takes 2 ms, these are 16,000 a second.
	maxTurns = 32
	// maxWatchStreams is how many calls of Watch and LeaseKeepAlive there may be. The API server has one for each connection. Each may hold up to 2 MiB of
	// a request that does not end: together 1 GiB, a quarter of what the role may have.
	maxWatchStreams = 512
	// maxWatches is how many watches a user may have, whatever streams they are on, and maxWatchedKey how long their keys may be: both are kept in memory
	// as long as the watch. The API server has a few hundred; its keys end at about 600 bytes. Each write of a key is told to all of its watches before
	// anybody's next write.
	maxWatches    = 1000
	maxWatchedKey = 4 << 10
	// maxWatchesOfKey is how many watches may have one key. The API server has one for each resource, and one for each client that watches events. With 1,000, the smallest writes of one key as fast as they go
	// had another user's puts take seconds.
	maxWatchesOfKey = 100
	// perTold is what a message counts that tells of changes, beside its bytes, for the pace of what is read, as a beat of a lease: 4,096 a second. What a watch misses meanwhile etcd tells in one message.
	perTold = int64(16 << 10)
	// maxHeader bounds the headers of a call; 16 MiB are gRPC's own bound.
	maxHeader = 16 << 10
	// maxRefused is how many calls beyond maxCalls are answered with a refusal at a time. Each may hold a request of 2 MiB that does not end; the connection of one more is closed.
	maxRefused = 64

	// DefaultReadBound is how long an answer may wait to be read. Then the connection is closed, and what waits on it is nowhere in memory any more.
	DefaultReadBound = 30 * time.Second
	// DefaultPatience is how long a call waits for answers before it to be sent.
	DefaultPatience = 5 * time.Second
)

// errExceeded is what a user is told who asks for more than it may: which bound it was, and what to do about it.
func errExceeded(user, format string, arguments ...any) error {
	return status.Errorf(codes.ResourceExhausted, "consensus: the user "+user+" "+format, arguments...)
}

// errAnswer refuses a call whose answer would be too large by itself.
func errAnswer(user string) error {
	return errExceeded(user, "asks for more than %d MiB at once, which is the most: ask in parts (limit), or for keys only", maxAnswers>>20)
}

// errUnread refuses a call whose answer does not fit beside those that were not read yet.
func errUnread(user string, unread int64) error {
	return errExceeded(user, "has %d MiB of answers that are being read or were not sent yet, and may have %d MiB: read the answers of former calls, and ask for less at a time",
		unread>>20, maxAnswers>>20)
}

// errFast refuses a call whose deadline comes before its user may read again.
func errFast(user string) error {
	return errExceeded(user, "may read %d MiB a second, after %d MiB at once, and has read faster: ask for less, or less often", readPace>>20, maxAnswers>>20)
}

// errRewrite refuses a put that would cost its user some bytes, and the store as many as the value has. No known client makes one.
func errRewrite(user string) error {
	return status.Errorf(codes.InvalidArgument, "consensus: the user %s puts with ignore_value, which is not offered: send the value", user)
}
