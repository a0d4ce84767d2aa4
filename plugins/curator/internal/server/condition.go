package server

import (
	"strings"
	"sync"
)

// concern is one of those that have a say in whether the role is Ready.
type concern int

const (
	ofStore     concern = iota // said by the probe
	ofAddress                  // said by the entrance
	ofSnapshots                // said by those that are scheduled
	concerns
)

// condition is the state of the role: Ready while no concern has a reason against it, and otherwise Degraded with the reasons of all of them.
type condition struct {
	host Host

	mu      sync.Mutex
	reasons [concerns]string
	told    bool // the host was told what the reasons make
}

// set replaces the reason of one concern; "": there is none. The host is told what is new, in the order in which it is.
func (c *condition) set(of concern, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told && c.reasons[of] == reason {
		return
	}
	c.reasons[of], c.told = reason, true
	var given []string
	for _, reason := range c.reasons {
		if reason != "" {
			given = append(given, reason)
		}
	}
	if len(given) == 0 {
		c.host.Ready()
		return
	}
	c.host.Degraded(strings.Join(given, "; "))
}
