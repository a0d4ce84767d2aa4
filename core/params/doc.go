// Package params finds and reads the parameters with which the core starts, and remembers which of them have made a node already.
//
// It owns the meaning of the parameters: a reeve.node.v1.Parameters message written as YAML, JSON or protobuf, and the places in which they may
// be: the file that the command line names, qemu's firmware configuration, the system directory. It owns the file consumed.json of the system directory too. It
// watches nothing and publishes nothing: Find is called once, before anything else runs, and Consumed by the room that makes the node.
package params
