package server_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func TestTickets(t *testing.T) {
	var ahead atomic.Int64
	c := newClusterOn(t, etcd, func(config *server.Config) {
		config.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	owner := c.asOwner()
	_, err := owner.CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{})
	wantCode(t, err, codes.FailedPrecondition, "curator")
	// One that comes a moment too early waits for the first report.
	early := make(chan error)
	for try := 1; ; try++ {
		go func() {
			_, err := owner.CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{DryRun: true})
			early <- err
		}()
		c.announce()
		if err := <-early; err == nil {
			break
		} else if status.Code(err) != codes.FailedPrecondition || try == 10 {
			t.Fatal(err)
		}
		// A busy machine may keep the report from coming in the time that it is waited for: again, as if there was none yet.
		if _, err := c.client().Delete(t.Context(), "status/"+c.id); err != nil {
			t.Fatal(err)
		}
		c.await(c.id, "the end of the report", func(node *clusterv1.Node) bool { return node.GetStatus() == nil })
	}
	for field, request := range map[string]*clusterv1.CreateTicketRequest{
		"lifetime_seconds": {LifetimeSeconds: 30*24*3600 + 1},
		"uses":             {Uses: 1001},
		"note":             {Note: strings.Repeat("x", 257)},
		"roles[1]":         {Roles: []string{"store", "store"}},
		"labels":           {Labels: map[string]string{"a": "\x1b"}},
	} {
		_, err := owner.CreateTicket(t.Context(), request)
		wantCode(t, err, codes.InvalidArgument, field)
	}
	_, err = owner.CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{Roles: []string{"ghost"}})
	wantCode(t, err, codes.NotFound, "ghost")

	olga := c.addOperator("olga", roleOwner)
	short, err := olga.client().CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{LifetimeSeconds: 60, Uses: 3, Note: "rack 4"})
	if err != nil {
		t.Fatal(err)
	}
	long := c.ticket(&clusterv1.CreateTicketRequest{LifetimeSeconds: 30 * 24 * 3600})
	daily := c.ticket(&clusterv1.CreateTicketRequest{})
	if made := daily.GetTicket(); made.GetUses() != 1 || made.GetExpires().AsTime().Sub(made.GetCreated().AsTime()) != 24*time.Hour || made.GetCreatedBy() != "owner" {
		t.Errorf("%v", made)
	}
	if short.GetTicket().GetCreatedBy() != "olga" {
		t.Errorf("%v", short)
	}
	list := c.tickets()
	if len(list) != 3 || !proto.Equal(list[0], daily.GetTicket()) || !proto.Equal(list[2], short.GetTicket()) {
		t.Errorf("%v", list)
	}
	// Connections are made before the clock goes on: certificates go by the machine's.
	m := c.machine()
	enrolment := m.enrolment()
	try := func(with *clusterv1.CreateTicketResponse, change func(*clusterv1.RegisterRequest)) error {
		request := m.request(with)
		if change != nil {
			change(request)
		}
		_, err := enrolment.Register(t.Context(), request)
		return err
	}
	// A connection of a stranger ends after 30 s. The secret makes this one last until the clock has gone on.
	wantCode(t, try(long, func(r *clusterv1.RegisterRequest) { r.JoinPublicKey = random(31) }), codes.InvalidArgument, "join_public_key")
	// Who does not have the secret is not told what there is.
	var said []string
	for _, change := range []func(*clusterv1.RegisterRequest){
		func(r *clusterv1.RegisterRequest) { r.TicketSecret = random(32) },
		func(r *clusterv1.RegisterRequest) { r.TicketSecret = nil },
		func(r *clusterv1.RegisterRequest) { r.TicketId = "0123456789abcdef" },
		func(r *clusterv1.RegisterRequest) { r.TicketId = "../cluster" },
		func(r *clusterv1.RegisterRequest) { r.TicketId, r.TicketSecret = "0123456789abcdef", make([]byte, 32) },
		func(r *clusterv1.RegisterRequest) { r.TicketId = long.GetTicket().GetId() },
	} {
		err := try(daily, change)
		wantCode(t, err, codes.Unauthenticated, "may have been revoked")
		said = append(said, err.Error())
	}
	for _, text := range said {
		if text != said[0] {
			t.Errorf("%q differs from %q", text, said[0])
		}
	}
	ahead.Store(int64(2 * time.Minute))
	wantCode(t, try(short, nil), codes.Unauthenticated, "expired at")
	wantCode(t, try(short, func(r *clusterv1.RegisterRequest) { r.TicketSecret = random(32) }), codes.Unauthenticated, "may have been revoked")
	if len(c.tickets()) != 3 {
		t.Errorf("%v", c.tickets())
	}
	_, err = owner.RevokeTicket(t.Context(), &clusterv1.RevokeTicketRequest{TicketId: daily.GetTicket().GetId()[:3]})
	wantCode(t, err, codes.InvalidArgument, "too short")
	revoked, err := owner.RevokeTicket(t.Context(), &clusterv1.RevokeTicketRequest{TicketId: daily.GetTicket().GetId()[:10]})
	if err != nil || !proto.Equal(revoked.GetTicket(), daily.GetTicket()) {
		t.Errorf("%v, %v", revoked, err)
	}
	_, err = owner.RevokeTicket(t.Context(), &clusterv1.RevokeTicketRequest{TicketId: daily.GetTicket().GetId()})
	wantCode(t, err, codes.NotFound, "reeve ticket list")
	wantCode(t, try(daily, nil), codes.Unauthenticated, "may have been revoked")
	// A day after its end nobody remembers a ticket.
	ahead.Store(int64(25 * time.Hour))
	if list, err := owner.ListTickets(t.Context(), &clusterv1.ListTicketsRequest{}); err != nil || len(list.GetTickets()) != 1 || !proto.Equal(list.GetTickets()[0], long.GetTicket()) {
		t.Errorf("%v, %v", list, err)
	}
	if state, err := store.New(store.Config{Client: c.client(), AnswerWithin: patience}).ReadTickets(t.Context()); err != nil || len(state.Tickets) != 1 {
		t.Errorf("%v, %v", state, err)
	}
	if err := try(long, nil); err != nil {
		t.Error(err)
	}
}

// Dry runs check as the real ones, answer as they would, and change nothing.
func TestDryRunsOfEnrolment(t *testing.T) {
	c := newCluster(t)
	c.announce()
	made := c.ticket(&clusterv1.CreateTicketRequest{Uses: 2})
	m, member := c.machine(), c.member("store")
	m.register(made, "store")
	if err := member.beat(incarnation(2)); err != nil {
		t.Fatal(err)
	}
	wantRefusedStart(t, member.beat(incarnation(1)), false, 2)
	records := store.New(store.Config{Client: c.client(), AnswerWithin: patience})
	before, err := records.ReadAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner, ctx := c.asOwner(), t.Context()
	created, err := owner.CreateTicket(ctx, &clusterv1.CreateTicketRequest{Uses: 7, DryRun: true})
	if err != nil || created.GetText() != nil || created.GetTicket().GetId() != "" || created.GetTicket().GetUses() != 7 {
		t.Errorf("%v, %v", created, err)
	}
	revoked, err := owner.RevokeTicket(ctx, &clusterv1.RevokeTicketRequest{TicketId: made.GetTicket().GetId(), DryRun: true})
	if err != nil || revoked.GetTicket().GetUsed() != 1 {
		t.Errorf("%v, %v", revoked, err)
	}
	approved, err := owner.ApproveNode(ctx, &clusterv1.ApproveNodeRequest{NodeId: m.id, SetRoles: true, Roles: []*clusterv1.RoleAssignment{{Role: "hostsfile"}}, DryRun: true})
	if err != nil || approved.GetNode().GetState() != stateStandby || roles(approved.GetNode()) != "hostsfile@2" {
		t.Errorf("%v, %v", approved, err)
	}
	_, err = owner.ApproveNode(ctx, &clusterv1.ApproveNodeRequest{NodeId: m.id, SetRoles: true, Roles: []*clusterv1.RoleAssignment{{Role: "api"}}, DryRun: true})
	wantCode(t, err, codes.FailedPrecondition, "reeve.consensus.v1")
	accepted, err := owner.AcceptNode(ctx, &clusterv1.AcceptNodeRequest{NodeId: member.id, DryRun: true})
	if err != nil || accepted.GetNode().GetProblem() != "" {
		t.Errorf("%v, %v", accepted, err)
	}
	labelled, err := owner.SetLabels(ctx, &clusterv1.SetLabelsRequest{NodeId: c.id, Labels: map[string]string{"rack": "", "row": "1"}, DryRun: true})
	if err != nil || len(labelled.GetNode().GetLabels()) != 1 || labelled.GetNode().GetLabels()["row"] != "1" {
		t.Errorf("%v, %v", labelled, err)
	}
	after, err := records.ReadAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.Epoch != before.Epoch || len(after.Tickets) != len(before.Tickets) || after.Refused[member.id] == nil || after.Nodes[m.id].GetState() != stateNew {
		t.Errorf("something was changed: epoch %d, then %d", before.Epoch, after.Epoch)
	}
	for _, entry := range c.log(6) {
		if entry.GetParameters()["dry_run"] != "true" {
			t.Errorf("%s does not say that it was a dry run", told(entry))
		}
	}
	// The real one.
	if _, err := owner.SetLabels(ctx, &clusterv1.SetLabelsRequest{NodeId: c.id, Labels: map[string]string{"rack": "", "row": "1"}}); err != nil {
		t.Fatal(err)
	}
	if node := c.nodeOf(c.id).GetRecord(); len(node.GetLabels()) != 1 || node.GetLabels()["row"] != "1" || node.GetGeneration() != 2 {
		t.Errorf("%v", node)
	}
	_, err = owner.SetLabels(ctx, &clusterv1.SetLabelsRequest{NodeId: c.id, Labels: map[string]string{"a": "b\n"}})
	wantCode(t, err, codes.InvalidArgument, "labels")
}

// said is a log that many write to.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// The secret of a ticket and the keys of volumes are nowhere but where they belong: in no log, no audit log, no record that is shown.
func TestNothingSecretOfEnrolmentIsShown(t *testing.T) {
	log := new(said)
	c := newClusterOn(t, etcd, func(config *server.Config) {
		config.Log = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: log})
	})
	c.announce()
	made := c.ticket(&clusterv1.CreateTicketRequest{Uses: 3, AutoApprove: true})
	m := c.machine()
	m.register(made)
	if _, err := m.commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.joins(m.join, incarnation(2)); err != nil {
		t.Fatal(err)
	}
	own := m.cuk
	m.cuk = random(32)
	_, err := m.commit()
	wantCode(t, err, codes.AlreadyExists)
	_, _ = m.joins(m.join, incarnation(1))
	wrong := c.machine()
	request := wrong.request(made)
	request.TicketSecret = append(bytes.Clone(request.TicketSecret), 1)
	_, err = wrong.enrolment().Register(t.Context(), request)
	wantCode(t, err, codes.Unauthenticated)

	var shown strings.Builder
	for _, entry := range c.log(100) {
		shown.WriteString(prototext.Format(entry))
	}
	shown.WriteString(prototext.Format(c.nodeOf(m.id)))
	for _, kept := range c.tickets() {
		shown.WriteString(prototext.Format(kept))
	}
	log.mu.Lock()
	shown.Write(log.text.Bytes())
	log.mu.Unlock()
	for what, secret := range map[string][]byte{"the ticket's secret": made.GetText().GetSecret(), "the CUK": own, "the other CUK": m.cuk} {
		for _, spelled := range []string{string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret)} {
			if strings.Contains(shown.String(), spelled) {
				t.Errorf("%s is shown", what)
			}
		}
	}
	// The secret is not in the store at all, and the CUK in one place.
	got, err := c.client().Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil || len(got.Kvs) == 0 {
		t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		if bytes.Contains(kv.Value, made.GetText().GetSecret()) || bytes.Contains(kv.Value, own) != (string(kv.Key) == "cuk/"+m.id) {
			t.Errorf("a secret at %q, or none where it belongs", kv.Key)
		}
	}
}

// A ticket whose record nobody can read is refused and named, and can be revoked. All else goes on.
func TestDamagedTicket(t *testing.T) {
	c := newCluster(t)
	c.announce()
	good, bad := c.ticket(&clusterv1.CreateTicketRequest{Uses: 2}), c.ticket(&clusterv1.CreateTicketRequest{})
	id := bad.GetTicket().GetId()
	for _, key := range []string{"tickets/" + id, "tickets/nonsense"} {
		if _, err := c.client().Put(t.Context(), key, "\xff"); err != nil {
			t.Fatal(err)
		}
	}
	// Whoever writes records counts the epoch up.
	c.update(func(*store.State) *store.Change { return new(store.Change) })
	if _, err := c.addRole(c.id, "hostsfile"); err != nil {
		t.Errorf("a change that has nothing to do with it: %v", err)
	}
	m := c.machine()
	enrolment := m.enrolment()
	_, err := enrolment.Register(t.Context(), m.request(bad))
	wantCode(t, err, codes.Unauthenticated, "none that cluster")
	if _, err := enrolment.Register(t.Context(), m.request(good)); err != nil {
		t.Errorf("with another ticket: %v", err)
	}
	problems := make(map[string]string)
	for _, ticket := range c.tickets() {
		problems[ticket.GetId()] = ticket.GetProblem()
	}
	if len(problems) != 3 || !strings.Contains(problems[id], id) || !strings.Contains(problems["nonsense"], "tickets/nonsense") || problems[good.GetTicket().GetId()] != "" {
		t.Errorf("listed: %q", problems)
	}
	for _, name := range []string{id[:6], "nonsense"} {
		if _, err := c.asOwner().RevokeTicket(t.Context(), &clusterv1.RevokeTicketRequest{TicketId: name}); err != nil {
			t.Errorf("revoke %s: %v", name, err)
		}
	}
	if list := c.tickets(); len(list) != 1 || !proto.Equal(list[0].GetCreated(), good.GetTicket().GetCreated()) {
		t.Errorf("after that: %v", list)
	}
}
