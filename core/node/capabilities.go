package node

import (
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/corecaps"
)

// CapabilitiesError says that the core is root without capabilities that no role runs without.
type CapabilitiesError struct {
	Lacking []corecaps.Capability
}

func (e *CapabilitiesError) Error() string {
	return fmt.Sprintf("node: reeved runs as root without %s: %s. Give it these capabilities (`docker run --cap-add`, CapabilityBoundingSet= of the service), or run it as an ordinary user",
		corecaps.Names(e.Lacking), corecaps.Explain(e.Lacking))
}

// checkCapabilities returns a *CapabilitiesError if the core cannot run roles. It logs and returns the names of what else the core lacks.
func checkCapabilities(log hclog.Logger) (lacking []string, err error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, fmt.Errorf("node: cannot read the capabilities of reeved: %w", err)
	}
	needed, others := corecaps.Lacking(uint64(data[0].Effective) | uint64(data[1].Effective)<<32)
	if len(others) > 0 {
		log.Warn("reeved runs as root without capabilities that it uses; it goes on without what they are for", "lacking", corecaps.Names(others), "lost", corecaps.Explain(others))
	}
	if len(needed) > 0 {
		return nil, &CapabilitiesError{Lacking: needed}
	}
	for _, one := range others {
		lacking = append(lacking, one.Name)
	}
	return lacking, nil
}
