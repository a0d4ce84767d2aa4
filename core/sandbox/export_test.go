package sandbox

import "maps"

// Without is the host as if it could not enforce some parts.
func (h *Host) Without(parts ...string) *Host {
	less := *h
	less.lacks = maps.Clone(h.lacks)
	for _, part := range parts {
		less.lacks[part] = "so says the test"
	}
	return &less
}

// OnThread is onThread.
func OnThread(do func()) { onThread(do) }
