// Package logfile writes the logs of a node: the core's own, where the parameters name a file, and those of its roles.
//
// A log is a file of bounded size and the one before it, which has the suffix ".1". The package watches nothing and publishes nothing.
package logfile
