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

// Config is what a Server needs. All of it but Log, Issuer and the interceptors is required.
type Config struct {
	// Log receives what an operator may want to know; nil discards it.
	Log hclog.Logger
	// RunDir is the node's directory on a tmpfs, absolute. The sockets are at RunDir/host/<instance name>/host.sock.
	RunDir string
	// Membership is the node's membership, which WatchMembership streams.
	Membership *event.Value[membership.Status]
	// Directory is the cluster's directory, which WatchDirectory streams.
	Directory *event.Value[*hostv1.Directory]
	// Network is the node's addresses, the preferred one first, which WatchNetwork streams.
	Network *event.Value[[]string]
	// Operators is who operates the cluster, which WatchOperators streams to roles that are granted it.
	Operators *event.Value[*hostv1.Operators]
	// Access is what OpenConsensus answers to each instance.
	Access *event.Value[access.States]
	// Identity is who the node is: WatchTrust streams the CA of its cluster.
	Identity *event.Value[*identity.Identity]
	// Issuer has the cluster issue the SVIDs of roles; nil: there is nobody who could, which whoever asks is told.
	Issuer Issuer
	// Adopted are the names of the instances that an earlier core launched and that run on: their directories stay as they are.
	Adopted []string
	// Unary and Stream are put around every call of every host socket, the first outermost: they see also what is refused. None by default.
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor

	// times are defaultTimes but in tests.
	times times
}

// times are the clock of a server, and how long it waits.
type times struct {
	now func() time.Time
	// firstBytesWithin is how long a connection may be silent: a peer on the same machine sends its first bytes at once, or never.
	firstBytesWithin time.Duration
	// lookAgain bounds how long nobody looks at the clock: a machine may have slept, or its clock been set.
	lookAgain time.Duration
	// resignWithin is the time over which SVIDs of a new CA are asked for.
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

// Server opens and closes the host sockets of instances. Its methods may be called from several goroutines.
type Server struct {
	config Config
	log    hclog.Logger
	rules  rules
	files  files

	mu   sync.Mutex
	open map[string]func() // by the name of the instance whose socket is open: what shuts it, and leaves its files
}

// New makes RunDir/host, removes what an earlier core left in it but for what is adopted, and returns a server with no socket open. It fails if an RPC of the host
// protocol does not declare who may call it, or declares what this server cannot enforce.
func New(config Config) (*Server, error) {
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("hostapi: configuration: %w", err)
	}
	if config.times.now == nil {
		config.times = defaultTimes
	}
	rules, err := rulesOf(registered())
	if err != nil {
		return nil, fmt.Errorf("hostapi: the host protocol cannot be served, since not every RPC says who may call it: %w", err)
	}
	log := config.Log
	if log == nil {
		log = hclog.NewNullLogger()
	}
	s := &Server{config: config, log: log.Named("hostapi"), rules: rules, open: make(map[string]func())}
	if err := s.makeRoot(); err != nil {
		return nil, fmt.Errorf("hostapi: %w", err)
	}
	return s, nil
}

// registered returns the services that every host socket serves.
func registered() map[string]grpc.ServiceInfo {
	server := grpc.NewServer()
	defer server.Stop()
	hostv1.RegisterHostServiceServer(server, &service{})
	workload.RegisterSpiffeWorkloadAPIServer(server, &workloads{})
	return server.GetServiceInfo()
}

func (s *Server) root() string { return filepath.Join(s.config.RunDir, "host") }

// makeRoot makes the directory of the sockets' directories and removes what nobody needs any more that an earlier core left there.
func (s *Server) makeRoot() error {
	if err := os.MkdirAll(s.root(), 0o711); err != nil {
		return fmt.Errorf("directory of the host sockets: %w", err)
	}
	// Roles pass through it to their own directory, whatever the umask says.
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
		// What cannot be removed is in nobody's way: a later instance has another number.
		if err := rmtree.Remove(context.Background(), filepath.Join(s.root(), entry.Name())); err != nil {
			s.log.Warn("Something of the host sockets of an earlier core stays behind; remove it by hand", "error", err)
		}
	}
	return nil
}
