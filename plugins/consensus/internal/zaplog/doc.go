// Package zaplog lets etcd, which logs with zap, write into the log of the role. It keeps the levels, from info on, and bounds how much one entry and one
// second may hold, since what etcd logs depends in part on what clients send. It owns no state.
package zaplog
