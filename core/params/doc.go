// Package params reads the parameters with which the core starts.
//
// It owns the meaning of the parameters file: a reeve.node.v1.Parameters message written as YAML or JSON. It watches nothing and publishes
// nothing: Load is called once, before anything else runs.
package params
