// Package logline knows the lines of the logs of roles: those that are records in JSON, as the SDK, log/slog and zap write them, and the one that the core
// writes where an instance begins. The core reads and writes them, and the command line shows them. The package owns no state.
package logline
