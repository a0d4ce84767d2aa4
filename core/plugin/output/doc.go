// Package output keeps what instances of roles write to their standard output and standard error, so that both outlive the core.
//
// It owns the logs of the roles and, beside the record of each instance, three files: its standard output, the spool of its standard error, and how far
// the core has copied that spool into the log. Of standard output only the first line counts, which is the handshake of the plugin.
package output
