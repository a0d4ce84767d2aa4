// Package curator reads the scheduled snapshots of the curator on the role's own node.
//
// A connection between two roles ends when an SVID does, and a curator may be started again. So a snapshot that is being read goes on where it was. What is read is held against the signed
// header of the file, before its last byte is given to anybody.
package curator
