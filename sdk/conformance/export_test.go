package conformance

import "time"

// Impatient gives plugins less time for the handshake and for Describe than the core does, of which some mutants use all. The others are to have that time: a
// busy machine may need it.
func Impatient(config Config) Config {
	config.patience = 10 * time.Second
	return config
}
