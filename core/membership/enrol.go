package membership

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Enrolment is the client of the cluster's EnrolmentService: *enrol.Client. *enrol.RemovedError, *enrol.RefusedError and *enrol.PinError do not go away by
// themselves; any other error may.
type Enrolment interface {
	Register(ctx context.Context, request *clusterv1.RegisterRequest) (*clusterv1.RegisterResponse, error)
	// Await tells the state of the node's record, and every change, until the context ends or it fails.
	Await(ctx context.Context, tell func(*clusterv1.AwaitResponse)) error
	Commit(ctx context.Context, request *clusterv1.CommitRequest) (*clusterv1.CommitResponse, error)
}

// Enrol is what a node needs to be taken into a cluster that there is.
type Enrol struct {
	Enrolment
	// Request is what the node says of itself and asks for, without the ticket and its addresses.
	Request *clusterv1.RegisterRequest
	// Addresses are the node's. The person who approves the node compares them, so the node registers only once they are known.
	Addresses *event.Value[[]string]
	// UseTicket and UseCUK call a function with the secret of the ticket, and with the cluster's half of the key of the volume; with nothing if it is not encrypted.
	UseTicket, UseCUK func(func([]byte) error) error
	// Incarnation is this start of the core.
	Incarnation func() (*clusterv1.Incarnation, error)
	// Keep keeps on the volume what the cluster has assigned to the node, before the node is a member.
	Keep func(*clusterv1.CommitResponse) error
}

const (
	// The bounds between calls that fail.
	askFirst = 200 * time.Millisecond
	askMost  = 10 * time.Second
	// The bounds between calls that are refused: another curator may not have heard yet of what one has done, and an owner may change their mind.
	refusedFirst = time.Second
	refusedMost  = time.Minute
	// callTimeout is how long a call may take, at all curators in turn: each of maxCurators that accepts connections and says nothing takes 10 s (core/enrol).
	callTimeout = 3 * time.Minute
	// maxCurators is how many addresses of curators are kept, the newest.
	maxCurators = 16
)

// enrol has the cluster take the node in, and goes on where an earlier core was stopped.
func (r *Room) enrol(ctx context.Context) error {
	if phase, _ := r.phase.Get(); phase == seal.Registering {
		if err := r.register(ctx); err != nil {
			return err
		}
	}
	if phase, _ := r.phase.Get(); phase == seal.Registered {
		if err := r.await(ctx); err != nil {
			return err
		}
	}
	return r.commit(ctx)
}

// register has the cluster make a record of the node. The ticket is forgotten as soon as that is known: again with the same key it is not asked for.
func (r *Room) register(ctx context.Context) error {
	err := r.ask(ctx, Unknown, "asks cluster "+r.config.Configuration.ClusterID+" to take it in", func(ctx context.Context) error {
		addresses, err := r.config.Enrol.Addresses.Wait(ctx, func([]string) bool { return true })
		if err != nil {
			return fmt.Errorf("the addresses of this machine are not known: %w", err)
		}
		request := proto.CloneOf(r.config.Enrol.Request)
		request.Addresses = addresses
		return r.config.Enrol.UseTicket(func(secret []byte) error {
			// The message is not kept by anybody; what the transport makes of it is encrypted at once.
			request.TicketId, request.TicketSecret = r.registration.Load().TicketID, bytes.Clone(secret)
			defer clear(request.GetTicketSecret())
			response, err := r.config.Enrol.Register(ctx, request)
			if err == nil {
				err = r.mine(response.GetNode())
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := r.enter(ctx, seal.Registered, checkpoint.EnterRegistered, func(c *seal.Configuration) { c.Ticket = nil }); err != nil {
		return err
	}
	r.config.Log.Info("the cluster has a record of this node", "cluster", r.config.Configuration.ClusterID, "node", r.nodeID())
	return nil
}

// await waits for somebody to approve the node.
func (r *Room) await(ctx context.Context) error {
	waits := fmt.Sprintf("waits for approval: compare the fingerprint of its key, %s, then say `reeve node approve %s`", r.fingerprint(), r.nodeID())
	err := r.ask(ctx, Foreign, waits, func(ctx context.Context) error {
		following, cancel := context.WithCancel(ctx)
		defer cancel()
		approved := false
		var problem error
		err := r.config.Enrol.Await(following, func(answer *clusterv1.AwaitResponse) {
			switch answer.GetState() {
			case clusterv1.NodeState_NODE_STATE_STANDBY, clusterv1.NodeState_NODE_STATE_UP:
				approved = true
				cancel()
			default:
				problem = r.machine.to(Foreign, waits)
			}
			if err := r.keepRegistration(ctx, &identity.Identity{}, answer.GetCurators()); err != nil {
				r.config.Log.Error("where the cluster's curators are cannot be kept", "error", err)
			}
		})
		switch {
		case approved:
			return nil
		case problem != nil:
			return backoff.Permanent(problem)
		case err == nil:
			return errors.New("the curator ended the watch")
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.enter(ctx, seal.Committing, checkpoint.EnterCommitting, nil)
}

// commit gives the cluster its half of the key of the volume and has the node be a member. Nothing of it is forgotten before all that a member needs is on
// the disk: again with the same half the cluster answers the same.
func (r *Room) commit(ctx context.Context) error {
	var answer *clusterv1.CommitResponse
	err := r.ask(ctx, Trusted, "approved, and about to be taken in by the cluster", func(ctx context.Context) error {
		incarnation, err := r.config.Enrol.Incarnation()
		if err != nil {
			return err
		}
		return r.config.Enrol.UseCUK(func(cuk []byte) error {
			request := &clusterv1.CommitRequest{Cuk: bytes.Clone(cuk), Incarnation: incarnation}
			defer clear(request.GetCuk())
			response, err := r.config.Enrol.Commit(ctx, request)
			if err != nil {
				return err
			}
			answer = response
			return r.complete(response)
		})
	})
	if err != nil {
		return err
	}
	checkpoint.At(checkpoint.KeepAssignment)
	if err := r.keep(ctx, "what the cluster has assigned to the node", func() error { return r.config.Enrol.Keep(answer) }); err != nil {
		return err
	}
	r.credentials.Set(identity.Credentials{CA: answer.GetCaCertificates(), SVID: answer.GetNodeSvid(), Owner: answer.GetOwnerPublicKey()})
	id, err := r.config.Identity.Wait(ctx, func(id *identity.Identity) bool { return len(id.CA) > 0 && id.SVID != nil })
	if err != nil {
		return err
	}
	owner := ed25519.PublicKey(answer.GetOwnerPublicKey())
	registration := r.next(id, answer.GetCurators())
	err = r.enter(ctx, seal.Member, checkpoint.EnterMember, func(c *seal.Configuration) { c.Owner, c.CUK, c.Registration = owner, nil, registration })
	if err != nil {
		return err
	}
	r.config.Configuration.Owner = owner
	r.registration.Store(registration)
	r.config.Log.Info("the cluster has taken the node in", "cluster", r.config.Configuration.ClusterID, "node", r.nodeID())
	return r.machine.to(Trusted, "the cluster has taken the node in; waiting for the first contact")
}

// complete says whether an answer has all that a member needs.
func (r *Room) complete(answer *clusterv1.CommitResponse) error {
	switch {
	case len(answer.GetCaCertificates()) == 0, len(answer.GetNodeSvid()) == 0, len(answer.GetOwnerPublicKey()) != ed25519.PublicKeySize:
		return errors.New("the curator's answer lacks the cluster's CA, the node's SVID or the owner's key")
	}
	return r.mine(answer.GetNode())
}

// mine refuses the record of another node.
func (r *Room) mine(record *clusterv1.NodeRecord) error {
	if record.GetId() != r.nodeID() {
		return fmt.Errorf("the curator sent the record of node %q to node %s", record.GetId(), r.nodeID())
	}
	return nil
}

// ask asks the cluster for something until it is done, with the state that the node is in meanwhile, and what for. *enrol.RemovedError if the cluster has removed the
// node.
func (r *Room) ask(ctx context.Context, state State, waits string, call func(context.Context) error) error {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = askFirst, askMost
	refusals := backoff.NewExponentialBackOff()
	refusals.InitialInterval, refusals.MaxInterval, refusals.Multiplier = refusedFirst, refusedMost, 2
	if err := r.machine.to(state, waits); err != nil {
		return err
	}
	for {
		begun := time.Now()
		err := r.call(ctx, state, call)
		var removed *enrol.RemovedError
		var permanent *backoff.PermanentError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &removed):
			return removed
		case errors.As(err, &permanent):
			return permanent.Err
		}
		if time.Since(begun) > askMost {
			retry.Reset() // it worked for a while
		}
		var pause time.Duration
		var reason string
		var refused *enrol.RefusedError
		var pins *enrol.PinError
		switch {
		case errors.As(err, &refused):
			pause, reason = refusals.NextBackOff(), waits+"; the cluster refuses: "+refused.Message
		case errors.As(err, &pins):
			pause, reason = refusals.NextBackOff(), waits+"; the cluster refuses: "+err.Error()
		default:
			pause, reason = retry.NextBackOff(), waits+"; the cluster does not answer: "+err.Error()
		}
		if now, _ := r.machine.status.Get(); now.Reason != reason {
			r.config.Log.Warn("the cluster does not do what the node asks for yet", "reason", reason)
		}
		if err := r.machine.to(state, reason); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// call bounds a call, but not one that waits for a person.
func (r *Room) call(ctx context.Context, state State, call func(context.Context) error) error {
	if state == Foreign {
		return call(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

// keepRegistration keeps by what the node finds its cluster while it has no certificates, or its volume is closed.
func (r *Room) keepRegistration(ctx context.Context, id *identity.Identity, curators []string) error {
	if r.registration.Load() == nil {
		return nil
	}
	next := r.next(id, curators)
	now := r.registration.Load()
	if slices.EqualFunc(now.CAPins, next.CAPins, bytes.Equal) && slices.Equal(now.Curators, next.Curators) {
		return nil
	}
	if err := r.config.Update(ctx, func(c *seal.Configuration) { c.Registration = next }); err != nil {
		return err
	}
	r.registration.Store(next)
	return nil
}

// next is by what the node finds its cluster, with what is new. An address that is known is nothing new, so that a curator that comes and goes is not written
// down every time; those that are not heard of any more stay as long as there is room.
func (r *Room) next(id *identity.Identity, curators []string) *seal.Registration {
	now := r.registration.Load()
	next := &seal.Registration{TicketID: now.TicketID, CAPins: now.CAPins, Curators: now.Curators}
	if pins := Pins(id.CA); len(pins) > 0 {
		next.CAPins = pins
	}
	if slices.ContainsFunc(curators, func(c string) bool { return !slices.Contains(now.Curators, c) }) {
		next.Curators = slices.Clone(curators)
		for _, known := range now.Curators {
			if !slices.Contains(next.Curators, known) {
				next.Curators = append(next.Curators, known)
			}
		}
		next.Curators = next.Curators[:min(len(next.Curators), maxCurators)]
	}
	return next
}

// Pins are the SHA-256 of the public keys of certificates, in an order of their own.
func Pins(certificates []*x509.Certificate) [][]byte {
	var pins [][]byte
	for _, certificate := range certificates {
		pin := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
		pins = append(pins, pin[:])
	}
	slices.SortFunc(pins, bytes.Compare)
	return pins
}

// KnownCurators returns where curators were when the node last heard of any, or what its ticket says; nil for a node that made its cluster.
func (r *Room) KnownCurators() []string {
	if known := r.registration.Load(); known != nil {
		return known.Curators
	}
	return nil
}

// fingerprint is how people compare the node's key.
func (r *Room) fingerprint() string {
	id, _ := r.config.Identity.Get()
	public, ok := id.Key.Public().(ed25519.PublicKey)
	if !ok {
		return "unknown"
	}
	sum := sha256.Sum256(public)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// disown has the node never be a member again, and returns when the context ends.
func (r *Room) disown(ctx context.Context, removed *enrol.RemovedError) error {
	if err := r.keep(ctx, "that the node was removed from its cluster", func() error { return r.config.Disown(removed.Reason) }); err != nil {
		return err
	}
	r.config.Log.Error("the node was removed from its cluster: its roles are stopped, and all that it has of the cluster is erased", "reason", removed.Reason)
	if err := r.machine.to(Disowning, removed.Reason); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
