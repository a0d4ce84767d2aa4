// Package rpcoption reads the options that the RPCs of a gRPC server declare in their proto files, and fails closed: a server with an RPC
// that declares nothing is not to be started. It owns no state.
package rpcoption
