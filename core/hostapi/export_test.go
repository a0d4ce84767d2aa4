package hostapi

import (
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/proto/hostfile"
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

// OpenDirectory opens a directory without following links.
func OpenDirectory(path string) (*os.File, error) { return hostfile.OpenDirectory(path) }

// What an instance may use.
const (
	MaxConnections = maxConnections
	MaxStreams     = maxStreams
	MaxFileSize    = hostfile.MaxSize
	MaxContent     = maxContent
)

// What is written into the files that keep the machine's names, and what is read from them.
var (
	CheckHostname   = checkHostname
	HostnameIn      = hostnameIn
	CheckMachineID  = checkMachineID
	ReadMachineID   = machineIDIn
	ErrNotMachineID = errNotMachineID
)

// AwaitLateClients is for TestMain: on a busy machine, a client may send its first bytes late.
func AwaitLateClients() { defaultTimes.firstBytesWithin = 5 * time.Minute }

// LetBeSilent lets connections be silent for ever: a server that waits for the end of that hangs.
func (c *Config) LetBeSilent() {
	c.times = defaultTimes
	c.times.firstBytesWithin = 24 * time.Hour
}

// SetClock gives what renews SVIDs a clock, which it reads all the time.
func (c *Config) SetClock(now func() time.Time) {
	c.times = defaultTimes
	c.times.now, c.times.lookAgain = now, 10*time.Millisecond
}

// KeepSVIDs keeps an SVID as long as the CA that signed it is there.
func (c *Config) KeepSVIDs() {
	c.times = defaultTimes
	c.times.resignWithin = 24 * time.Hour
}

// UnreadDirectories is how many directories are held that are not the newest, and their bytes.
func (s *Server) UnreadDirectories() (editions, bytes int) {
	s.directories.mu.Lock()
	defer s.directories.mu.Unlock()
	return len(s.directories.late), s.directories.unread
}
