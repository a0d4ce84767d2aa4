// Package params finds and reads the core's parameters, and remembers which of them already made a node.
//
// It owns the meaning of the parameters (a reeve.node.v1.Parameters message as YAML, JSON or protobuf) and the places where they may be: the file on
// the command line, qemu's firmware configuration, the system directory. It also owns consumed.json in the system directory,
// and the mark beside the parameters. It watches and publishes nothing: Find is called once, before anything else runs, and Consumed by the room that makes the node.
package params
