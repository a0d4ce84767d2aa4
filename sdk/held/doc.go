// Package held counts what the clients of a gRPC server have it hold in memory, and bounds it: requests of which a part has come, calls that are under way, and answers that their clients have not read.
//
// gRPC holds all of it without a bound. It takes what comes of a request before anybody can ask whose it is, and no call of a client that stops in the midst of one ever ends. It takes an answer of any size at once, and keeps
// it until the client reads, after the call has ended, too. So each of a client's connections may hold as many of the largest requests and answers as it may have streams.
//
// A server has its connections counted by [Counts.Connection], its calls by [Counts.Begin] and the interceptors, and has the [Counts.Options]. One that only sends what is encoded already has the [Options]. A client is whoever the server says: a user, a key, a role. It says so when it has
// found it out. What is sent to many alike is encoded once, as a [Message], and is counted once in the sum of all clients.
//
// That an answer was sent is known since gRPC gives its bytes back to a pool then, and the pool is the count. So nothing is compressed: what gRPC compresses is not what it gives back, and a few bytes that are compressed may become a
// large request.
//
// A Counts is safe for concurrent use. It owns no goroutines, but for those that close connections.
package held
