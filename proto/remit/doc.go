// Package remit reads grants: what each of them allows, how far a sandbox is open with them, and what a manifest asks for beyond what was decided.
// The curator checks with it what it is given, the core builds sandboxes from it, and the command line explains with it. It owns no state.
//
// The grants are defined in the comments of reeve.role.v1 (Grant) and, those that an RPC of the host needs, in reeve.host.v1.
package remit
