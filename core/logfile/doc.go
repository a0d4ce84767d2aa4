// Package logfile is the file that the core writes its own log to, where the parameters name one.
//
// It owns that file and the one before it, which has the suffix ".1". It watches nothing and publishes nothing.
package logfile
