package hostile

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// mostOfCurator is what the curator may have at a time, whoever calls: half of what it is granted.
const mostOfCurator = 512 << 10 // KiB

// sieges are the attacks on the cluster's management. Each goes on until it has done what it does, or until ctx ends.
var sieges = map[string]func(*siege, context.Context, *testing.T) *Outcome{
	"cluster.strangers": (*siege).strangers,
	"cluster.operator":  (*siege).operator,
	"cluster.audit":     (*siege).audit,
}

// siege is what an attack on the cluster's management is made with: a way in for whom the owner has added, and another operator.
type siege struct {
	*scene
	curator string
	owner   clusterv1.ManagementServiceClient
}

func (s *scene) siege(t *testing.T) *siege {
	t.Helper()
	b := &siege{scene: s, curator: s.status.Cluster.Curators[0]}
	b.owner = b.as(t, proof(t, devcluster.ReadKey(t, s.cluster.Path("owner.key"))))
	return b
}

// published looks at what the cluster shows of a role that publishes as much as it can: all of what a role may publish, or nothing but the endpoints of one that publishes more; and that it shows where
// the curator is.
func (s *scene) published(t *testing.T, o *Outcome, role string, fits bool) {
	t.Helper()
	b := s.siege(t)
	tooMuch := ""
	seen, ok := eventually.Try(s.ctx, patience, 100*time.Millisecond, func() (bool, string) {
		got, err := b.owner.GetNode(s.ctx, &clusterv1.GetNodeRequest{NodeId: s.node})
		if err != nil {
			return false, err.Error()
		}
		sizes, all, said := make(map[string]int), 0, ""
		for _, instance := range got.GetNode().GetStatus().GetInstances() {
			size := proto.Size(&clusterv1.InstanceStatus{Values: instance.GetValues(), Endpoints: instance.GetEndpoints()})
			sizes[instance.GetRole()] = size
			all += size
			if size > limits.Published {
				tooMuch = fmt.Sprintf("the cluster shows %d bytes that %s publishes", size, instance.GetRole())
			}
			if instance.GetRole() == role {
				said = instance.GetReason()
			}
		}
		if all > limits.ReportedPublished {
			tooMuch = fmt.Sprintf("the cluster shows %d bytes that the roles of a node publish", all)
		}
		shown := fits && sizes[role] > limits.Published/2 || !fits && strings.Contains(said, "left out")
		return tooMuch != "" || shown && sizes["curator"] > 0, fmt.Sprintf("%v: %s", sizes, said)
	})
	if tooMuch != "" || !ok {
		o.escape("%s", cmp.Or(tooMuch, "what the cluster shows of "+role+": "+seen))
	}
}

// besiege performs a row whose attackers call the curator from outside. Meanwhile another operator makes one change after the other.
func (s *scene) besiege(t *testing.T, row Row) *Outcome {
	s.refresh(t)
	before, err := procfs.Read(s.status.Role("curator").PID)
	if err != nil {
		t.Fatal(err)
	}
	b := s.siege(t)
	other := b.added(t, "other-"+strings.TrimPrefix(row.ID, "cluster."), clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR)
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	attacking, end := context.WithCancel(ctx)
	defer end()
	served := make(chan *Outcome, 1)
	go func() { served <- b.serve(ctx, attacking, other) }()
	o := sieges[row.ID](b, ctx, t)
	end()
	meanwhile := <-served
	o.Escapes, o.Note = append(o.Escapes, meanwhile.Escapes...), meanwhile.Note
	if now, err := procfs.Read(s.refresh(t).Role("curator").PID); err != nil || now.PID != before.PID || now.Start != before.Start {
		o.escape("the curator was ended")
	} else if most := held(t, before.PID, "VmHWM:"); most > mostOfCurator {
		o.escape("the curator had %d MiB of memory", most>>10)
	}
	if seen, ok := eventually.Try(s.ctx, patience, 100*time.Millisecond, func() (bool, string) {
		got, err := b.owner.GetNode(s.ctx, &clusterv1.GetNodeRequest{NodeId: s.node})
		return err == nil && got.GetNode().GetHealthy(), fmt.Sprint(err)
	}); !ok {
		o.escape("the node is not heard: %s", seen)
	}
	s.answers(t, o)
	s.askVictim(t, o)
	return o
}

// serve makes one change after the other as an operator, and one after the attack.
func (b *siege) serve(ctx, attacking context.Context, other clusterv1.ManagementServiceClient) *Outcome {
	o := &Outcome{}
	var slowest time.Duration
	made := 0
	for under := true; under; {
		under = attacking.Err() == nil
		began := time.Now()
		var err error
		for { // a busy machine may have the curator ask for another try
			_, err = other.SetLabels(ctx, &clusterv1.SetLabelsRequest{NodeId: b.node, Labels: map[string]string{"other": fmt.Sprint(made)}})
			if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
				break
			}
		}
		if err != nil {
			o.escape("change %d of another operator was refused: %v", made+1, err)
			break
		}
		made++
		slowest = max(slowest, time.Since(began))
	}
	o.Note = fmt.Sprintf("another operator made %d changes, the slowest of which took %s", made, slowest.Round(time.Millisecond))
	return o
}

// as is the cluster's management for who shows a certificate.
func (b *siege) as(t *testing.T, certificate tls.Certificate) clusterv1.ManagementServiceClient {
	t.Helper()
	return clusterv1.NewManagementServiceClient(b.connect(t, certificate, new(net.Dialer).DialContext))
}

func (b *siege) connect(t *testing.T, certificate tls.Certificate, dial func(ctx context.Context, network, address string) (net.Conn, error)) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+b.curator, grpc.WithNoProxy(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}, // who the curator is does not matter here
	})), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// added is the management for an operator whom the owner has just added.
func (b *siege) added(t *testing.T, name string, role clusterv1.OperatorRole) clusterv1.ManagementServiceClient {
	t.Helper()
	own, session := devcluster.NewKey(t), devcluster.NewKey(t)
	_, err := b.owner.AddOperator(b.ctx, &clusterv1.AddOperatorRequest{Name: name, Role: role, PublicKey: own.Public().(ed25519.PublicKey)})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.as(t, proof(t, own)).Login(b.ctx, &clusterv1.LoginRequest{PublicKey: session.Public().(ed25519.PublicKey)})
	if err != nil {
		t.Fatal(err)
	}
	return b.as(t, tls.Certificate{Certificate: answer.GetCertificate(), PrivateKey: session})
}

// proof is a certificate by which the holder of a key proves it.
func proof(t *testing.T, key ed25519.PrivateKey) tls.Certificate {
	t.Helper()
	certificate, err := identity.SelfSigned(key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// strangers call with keys that nobody knows. On every other connection are calls that never end, more than a stranger may have, whose headers do not fit into what is read at once: the connection is
// closed for them before a call after them is answered.
func (b *siege) strangers(ctx context.Context, t *testing.T) *Outcome {
	const connections, calls = 64, 64
	o := &Outcome{Tries: connections * calls}
	var mu sync.Mutex
	var calling sync.WaitGroup
	call := func(stranger *grpc.ClientConn, closed bool) {
		_, err := clusterv1.NewManagementServiceClient(stranger).ListNodes(ctx, &clusterv1.ListNodesRequest{})
		mu.Lock()
		defer mu.Unlock()
		switch o.answer(status.Code(err).String()); {
		case err == nil:
			o.escape("a stranger was let in")
		case closed && status.Code(err) != codes.Unavailable:
			o.escape("a stranger who has %d calls under way is answered: %v", calls, err)
		}
	}
	unending := metadata.AppendToOutgoingContext(ctx, "large", strings.Repeat("x", 5000))
	for range connections / 2 {
		stranger := b.connect(t, proof(t, devcluster.NewKey(t)), new(net.Dialer).DialContext)
		for range calls {
			calling.Go(func() { call(stranger, false) })
		}
		var dialed atomic.Bool
		once := b.connect(t, proof(t, devcluster.NewKey(t)), func(ctx context.Context, network, address string) (net.Conn, error) {
			if dialed.Swap(true) {
				return nil, errors.New("it was closed")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		})
		calling.Go(func() {
			for range calls {
				_, _ = once.NewStream(unending, &grpc.StreamDesc{ClientStreams: true}, clusterv1.ManagementService_ListNodes_FullMethodName)
			}
			call(once, true)
		})
	}
	calling.Wait()
	return o
}

// operator changes what an operator may, as fast as that goes: the labels of a node whose record is large, and the configuration of a role.
func (b *siege) operator(ctx context.Context, t *testing.T) *Outcome {
	const role, workers, lasts = "talker", 16, time.Second
	o := &Outcome{}
	hostile := b.added(t, "hostile", clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR)
	change := func(ctx context.Context, as clusterv1.ManagementServiceClient, content string) (record *clusterv1.NodeRecord, err error) {
		answer, err := as.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: b.node, Role: role, Configuration: fmt.Sprintf(`{"content": %q}`, content)})
		return answer.GetNode(), err
	}
	large := strings.Repeat("x", 200<<10)
	record, err := change(ctx, hostile, large)
	if err != nil {
		t.Errorf("as %s, the operator was not let in: %v", b.user, err)
		return o
	}
	size := int64(proto.Size(record))
	attacking, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	began := time.Now()
	var made atomic.Int64
	var changing sync.WaitGroup
	for worker := range workers {
		changing.Go(func() {
			for n := 0; attacking.Err() == nil; n++ {
				_, err := hostile.SetLabels(attacking, &clusterv1.SetLabelsRequest{NodeId: b.node, Labels: map[string]string{"hostile": fmt.Sprint(worker, n)}})
				if err == nil {
					made.Add(1)
				}
				if _, err = change(attacking, hostile, fmt.Sprint(worker, n, large)); err == nil {
					made.Add(1)
				}
			}
		})
	}
	changing.Wait()
	took := time.Since(began)
	o.Tries = int(made.Load())
	o.answer(fmt.Sprintf("%d changes of a record of %d KiB in %.1f s", made.Load(), size>>10, took.Seconds()))
	// What is written at once, and what is written in the time.
	if most := (4<<20+256<<10*int64(took.Seconds()+1))/size + 1; made.Load() > most {
		o.escape("%d changes of a record of %d KiB in %s: no more than %d are to be made", made.Load(), size>>10, took, most)
	}
	if _, err := change(ctx, b.owner, ""); err != nil {
		t.Error(err)
	}
	return o
}

// audit has a viewer read and be refused so often that what it did first would be pushed out of the audit log.
func (b *siege) audit(ctx context.Context, t *testing.T) *Outcome {
	const calls, workers, mostEntries = 100, 8, 150
	o := &Outcome{Tries: 1 + 2*calls}
	viewer := b.added(t, "viewer", clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER)
	refused := func(role string) {
		if _, err := viewer.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: b.node, Role: role}); status.Code(err) != codes.PermissionDenied {
			o.escape("a viewer adds a role, and is answered %v", err)
		}
	}
	refused("first")
	var left atomic.Int64
	left.Store(calls)
	var calling sync.WaitGroup
	var failed atomic.Int64
	for range workers {
		calling.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := viewer.ListNodes(ctx, &clusterv1.ListNodesRequest{}); err != nil {
					failed.Add(1)
				}
				if _, err := viewer.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: b.node, Role: "more"}); status.Code(err) != codes.PermissionDenied {
					failed.Add(1)
				}
			}
		})
	}
	calling.Wait()
	if failed.Load() > 0 {
		o.escape("%d calls of a viewer were not answered as they are to be", failed.Load())
	}
	// Nobody is answered before it is in the log.
	first, entries := false, 0
	for _, entry := range b.cluster.Audit(t) {
		if strings.HasSuffix(entry.Caller, "viewer") {
			entries++
			first = first || entry.Parameters["role"] == "first"
		}
	}
	o.answer(fmt.Sprintf("%d entries of the audit log", entries))
	if !first {
		o.escape("what a viewer did first is not in the audit log")
	}
	if entries > mostEntries {
		o.escape("a viewer has made %d entries of the audit log", entries)
	}
	return o
}
