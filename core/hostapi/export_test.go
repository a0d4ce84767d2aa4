package hostapi

import (
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/plugin"
)

// RefusesServices is why a server with other services than the host protocol's would not be made.
func RefusesServices(services map[string]grpc.ServiceInfo) error {
	_, err := rulesOf(services)
	return err
}

// Permit decides on a call as the server of an instance with this remit does.
func Permit(remit *plugin.Remit, method string, request any) error {
	rules, err := rulesOf(registered())
	if err != nil {
		return err
	}
	return rules.permit(remit, method, request)
}

// OpenDirectory and WalkDirectory are the two ways by which a directory is opened: with openat2, and where the kernel lacks it.
func OpenDirectory(path string) (*os.File, error) { return openDirectory(path) }
func WalkDirectory(path string) (*os.File, error) { return walkDirectory(path) }

// What an instance may use.
const (
	MaxConnections = maxConnections
	MaxStreams     = maxStreams
	MaxFileSize    = maxFileSize
)

// Blind makes the server notice a file on which something is mounted only when it is replaced, as it does on kernels that do not tell before.
func (s *Server) Blind() { s.files.blind = true }

// What is written into the files that keep the machine's names, and what is read from them.
var (
	CheckHostname   = checkHostname
	HostnameIn      = hostnameIn
	CheckMachineID  = checkMachineID
	ReadMachineID   = machineIDIn
	ErrNotMachineID = errNotMachineID
)

// KeyOf reads a certificate request.
var KeyOf = keyOf

// LetBeSilent makes a socket that is opened then let connections be silent for ever: if it waits for the end of that, the test hangs.
func LetBeSilent(t *testing.T) {
	before := firstBytesWithin
	firstBytesWithin = 24 * time.Hour
	t.Cleanup(func() { firstBytesWithin = before })
}

// SetClock gives what renews SVIDs a clock, at which it looks all the time.
func SetClock(t *testing.T, now func() time.Time) {
	before, every := clock, lookAgain
	clock, lookAgain = now, 10*time.Millisecond
	t.Cleanup(func() { clock, lookAgain = before, every })
}

// KeepSVIDs has an SVID kept as long as the CA that signed it is there.
func KeepSVIDs(t *testing.T) {
	before := resignWithin
	resignWithin = 24 * time.Hour
	t.Cleanup(func() { resignWithin = before })
}
