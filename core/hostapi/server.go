package hostapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/rmtree"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config configures a Server. Everything but Log, Issuer, Adopted and the interceptors is required.
type Config struct {
	// Log is the operator's log; nil discards it.
	Log hclog.Logger
	// RunDir is the node's absolute directory on a tmpfs. The sockets are RunDir/host/<instance name>/host.sock.
	RunDir string
	// Membership is the node's membership, for WatchMembership.
	Membership *event.Value[membership.Status]
	// Directory is the cluster's directory, for WatchDirectory.
	Directory *event.Value[*hostv1.Directory]
	// Network is the node's addresses, the preferred one first, for WatchNetwork.
	Network *event.Value[[]string]
	// Peers are the machines on which other nodes may be as the operator says, and Curators the host:port of every curator that the node knows, of now or from earlier. WatchNetwork tells both as machines.
	Peers, Curators *event.Value[[]string]
	// Operators is who operates the cluster, for WatchOperators.
	Operators *event.Value[*hostv1.Operators]
	// Access is the answer of OpenConsensus for each instance.
	Access *event.Value[access.States]
	// Identity is the node's identity. WatchTrust streams its cluster's CA.
	Identity *event.Value[*identity.Identity]
	// Issuer asks the cluster for SVIDs of roles; nil: callers are told that nobody can issue one.
	Issuer Issuer
	// Adopted are the names of running instances of an earlier core. Their directories stay.
	Adopted []string
	// Unary and Stream wrap every call of every host socket, the first outermost. They also see refused calls.
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor

	// times is defaultTimes, except in tests.
	times times
}

// times is the server's clock and its waiting times.
type times struct {
	now func() time.Time
	// firstBytesWithin is how long a connection may be silent. A peer on the same machine sends its first bytes at once or never.
	firstBytesWithin time.Duration
	// lookAgain is the longest time between two looks at the clock: the machine may have slept, or its clock been set.
	lookAgain time.Duration
	// resignWithin is the time over which SVIDs of a new CA are requested.
	resignWithin time.Duration
}

var defaultTimes = times{now: time.Now, firstBytesWithin: 5 * time.Second, lookAgain: time.Minute, resignWithin: 10 * time.Second}

func (c *Config) check() error {
	var problems []error
	if !filepath.IsAbs(c.RunDir) {
		problems = append(problems, fmt.Errorf("RunDir %q is not an absolute path", c.RunDir))
	}
	for name, missing := range map[string]bool{
		"Membership": c.Membership == nil,
		"Directory":  c.Directory == nil,
		"Network":    c.Network == nil,
		"Peers":      c.Peers == nil,
		"Curators":   c.Curators == nil,
		"Operators":  c.Operators == nil,
		"Access":     c.Access == nil,
		"Identity":   c.Identity == nil,
	} {
		if missing {
			problems = append(problems, fmt.Errorf("%s is missing", name))
		}
	}
	return errors.Join(problems...)
}

// Server opens and closes the host sockets of instances. It is safe for concurrent use.
type Server struct {
	config Config
	log    hclog.Logger
	rules  rules
	files  files
	// directories is what all sockets send of the directory.
	directories *directories

	mu   sync.Mutex
	open map[string]func() // by instance name: shuts the socket and leaves its files
}

// New makes RunDir/host, removes what an earlier core left in it except for the adopted instances, and returns a server without sockets. It fails if
// an RPC of the host protocol has no access option, or one that it cannot enforce.
func New(config Config) (*Server, error) {
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("hostapi: configuration: %w", err)
	}
	if config.times.now == nil {
		config.times = defaultTimes
	}
	rules, err := rulesOf(registered())
	if err != nil {
		return nil, fmt.Errorf("hostapi: cannot serve the host protocol, because some RPCs do not say who may call them: %w", err)
	}
	log := config.Log
	if log == nil {
		log = hclog.NewNullLogger()
	}
	s := &Server{config: config, log: log.Named("hostapi"), rules: rules, directories: newDirectories(config.Directory), open: make(map[string]func())}
	if err := s.makeRoot(); err != nil {
		return nil, fmt.Errorf("hostapi: %w", err)
	}
	return s, nil
}

// registered returns the services of every host socket.
func registered() map[string]grpc.ServiceInfo {
	server := grpc.NewServer()
	defer server.Stop()
	hostv1.RegisterHostServiceServer(server, &service{})
	workload.RegisterSpiffeWorkloadAPIServer(server, &workloads{})
	return server.GetServiceInfo()
}

func (s *Server) root() string { return filepath.Join(s.config.RunDir, "host") }

// makeRoot makes the root directory, and removes what an earlier core left there except for adopted instances.
func (s *Server) makeRoot() error {
	if err := os.MkdirAll(s.root(), 0o711); err != nil {
		return fmt.Errorf("directory of the host sockets: %w", err)
	}
	// Roles pass through it, whatever the umask is.
	if err := os.Chmod(s.root(), 0o711); err != nil {
		return fmt.Errorf("directory of the host sockets: %w", err)
	}
	entries, err := os.ReadDir(s.root())
	if err != nil {
		return fmt.Errorf("directory of the host sockets: %w", err)
	}
	for _, entry := range entries {
		if slices.Contains(s.config.Adopted, entry.Name()) {
			continue
		}
		// A later instance has another number, so what stays is in nobody's way.
		if err := rmtree.Remove(context.Background(), filepath.Join(s.root(), entry.Name())); err != nil {
			s.log.Warn("Cannot remove the directory of an earlier core's host socket; remove it by hand", "error", err)
		}
	}
	return nil
}
