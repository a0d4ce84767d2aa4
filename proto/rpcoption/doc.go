// Package rpcoption reads the options that the RPCs of a gRPC server declare in their proto files, and fails closed: a server with an RPC
// that declares nothing is not to be started. It also tells which fields of a request an audit log shows. It owns no state.
package rpcoption
