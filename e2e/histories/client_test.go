package histories_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/e2e/internal/history"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// callTimeout is how long a client waits for an answer. It is longer than the store needs for another leader, and short enough that a client of a curator that is cut
	// off makes several calls.
	callTimeout = 3 * time.Second
	// pace is the pause of a client between two calls, and waitPace the one after a call that was not answered.
	pace     = 10 * time.Millisecond
	waitPace = 50 * time.Millisecond
)

// labels are the keys of the modelled labels.
var labels = [history.Keys]string{"history-a", "history-b"}

// modelledRole is the role that is assigned and taken away: nothing of the cluster needs it.
const modelledRole = "hostsfile"

// stateOf is what is modelled of a record.
func stateOf(record *clusterv1.NodeRecord) (state history.NodeState) {
	state.Generation = record.GetGeneration()
	for i, key := range labels {
		state.Labels[i] = record.GetLabels()[key]
	}
	state.Role = slices.ContainsFunc(record.GetRoles(), func(assigned *clusterv1.RoleAssignment) bool { return assigned.GetRole() == modelledRole })
	return state
}

// workload is what the clients of one run share.
type workload struct {
	history *history.History
	// prefix begins the notes and the values of the run, which are another one for each call.
	prefix string
	// nodes are the IDs of the nodes, and others their roles but the modelled one, and modelled that one.
	nodes    []string
	others   map[string][]*clusterv1.RoleAssignment
	modelled map[string]*clusterv1.RoleAssignment

	mu sync.Mutex
	// tickets are the IDs of those that may be revoked, by their notes.
	tickets map[string]string
	// generations are those that were last seen, for who only writes if nothing has changed.
	generations map[string]uint64
	// readWithin is how long a client that fails over waits for what it reads.
	readWithin time.Duration
	// strange are answers that nobody should get; failed are the reads that failed of clients that fail over.
	strange []string
	failed  int
	unsent  int
}

// client makes one call after another.
type client struct {
	*workload
	name   string
	access *access
	// other is another curator, which is asked for what this one has just acknowledged.
	other  *access
	random *rand.Rand
	made   int
}

// run calls until the context ends. A call that has begun is waited for.
func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := pace
		object, input := c.choose()
		switch call, answered := c.call(c.access, object, input); {
		case !answered:
			pause = waitPace
		case call.Write() && c.random.IntN(2) == 0:
			// At once, as somebody does who was told: what answers from a memory that is behind by a moment only is found out so.
			c.call(c.other, object, reading(object))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// reading is how an object is read.
func reading(object string) any {
	if object == history.Tickets {
		return history.TicketInput{Op: history.ListTickets}
	}
	return history.NodeInput{Op: history.GetNode}
}

// choose chooses what to do next.
func (c *client) choose() (object string, input any) {
	c.made++
	node := c.nodes[c.random.IntN(len(c.nodes))]
	value := fmt.Sprintf("%s-%s-%d", c.prefix, strings.ReplaceAll(c.name, " ", ""), c.made)
	switch draw := c.random.IntN(100); {
	case draw < 36:
		return node, history.NodeInput{Op: history.SetLabel, Key: c.random.IntN(history.Keys), Value: value}
	case draw < 40:
		return node, history.NodeInput{Op: history.SetLabel, Key: c.random.IntN(history.Keys)}
	case draw < 55:
		return node, history.NodeInput{Op: history.GetNode}
	case draw < 60:
		return everyNode, history.NodeInput{Op: history.GetNode}
	case draw < 62:
		return node, history.NodeInput{Op: history.AddRole, Role: true}
	case draw < 64:
		return node, history.NodeInput{Op: history.RemoveRole}
	case draw < 69:
		c.mu.Lock()
		defer c.mu.Unlock()
		return node, history.NodeInput{Op: history.SetRoles, Role: c.random.IntN(4) > 0, Expected: c.generations[node]}
	case draw < 83:
		return history.Tickets, history.TicketInput{Op: history.CreateTicket, Note: value}
	case draw < 90:
		if note := c.someTicket(); note != "" {
			return history.Tickets, history.TicketInput{Op: history.RevokeTicket, Note: note}
		}
	}
	return history.Tickets, history.TicketInput{Op: history.ListTickets}
}

// everyNode is what a call is about that reads all nodes.
const everyNode = "nodes"

// someTicket is the note of a ticket of which the ID is known; empty: there is none. Every other one is never revoked, so that it must be there in the end.
func (c *client) someTicket() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var notes []string
	for note, id := range c.tickets {
		if id[len(id)-1]%2 == 0 {
			notes = append(notes, note)
		}
	}
	if len(notes) == 0 {
		return ""
	}
	slices.Sort(notes)
	return notes[c.random.IntN(len(notes))]
}

// call makes a call and writes it down. It says whether a curator answered, were it by a refusal.
func (c *client) call(access *access, object string, input any) (call history.Call, answered bool) {
	// Not that of the run: what has begun is brought to its end.
	ctx, sending := withSending(context.Background())
	call = history.Call{Client: c.name, Object: object, Input: input, Began: c.history.Now()}
	within := callTimeout
	if access.failsOver && !call.Write() {
		within = c.readWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var answers map[string]any
	var err error
	switch input := input.(type) {
	case history.NodeInput:
		answers, err = c.callNode(ctx, access.api, object, input)
	case history.TicketInput:
		answers, err = c.callTickets(ctx, access.api, input)
	}
	call.Ended, call.Code = c.history.Now(), status.Code(err).String()
	switch call.Outcome = outcome(err, sending.sent.Load()); call.Outcome {
	case history.Answered:
		var calls []history.Call
		for about, answer := range answers {
			one := call
			one.Object, one.Output = about, answer
			calls = append(calls, one)
		}
		c.history.Add(calls...)
		return call, true
	case history.Unsent:
		c.mu.Lock()
		c.unsent++
		c.mu.Unlock()
		return call, false
	}
	c.history.Add(call)
	c.mu.Lock()
	defer c.mu.Unlock()
	if access.failsOver && !call.Write() {
		c.failed++
	}
	switch status.Code(err) {
	case codes.Aborted, codes.FailedPrecondition, codes.Unavailable, codes.DeadlineExceeded:
	default:
		c.strange = append(c.strange, fmt.Sprintf("%s: %v", call, err))
	}
	return call, call.Outcome == history.Refused
}

// outcome is what a client may conclude from an error. A curator that refuses has changed nothing; of every other error it may be that the answer alone was lost.
func outcome(err error, sent bool) history.Outcome {
	switch code := status.Code(err); {
	case code == codes.OK:
		return history.Answered
	case !sent:
		return history.Unsent
	case slices.Contains([]codes.Code{
		codes.Aborted, codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted,
		codes.AlreadyExists, codes.Unimplemented,
	}, code):
		return history.Refused
	}
	return history.Unknown
}

// callNode makes a call on a node, or reads all of them, and returns what is answered about each.
func (c *client) callNode(ctx context.Context, api clusterv1.ManagementServiceClient, id string, input history.NodeInput) (map[string]any, error) {
	if id == everyNode {
		return readNodes(ctx, api)
	}
	record, err := c.changeNode(ctx, api, id, input)
	switch {
	case err == nil:
	case input.Op == history.RemoveRole && status.Code(err) == codes.NotFound:
		return map[string]any{id: history.NodeOutput{Refusal: history.Absent}}, nil
	case input.Op == history.SetRoles && status.Code(err) == codes.Aborted && strings.Contains(err.Error(), "has generation"):
		return map[string]any{id: history.NodeOutput{Refusal: history.Changed}}, nil
	default:
		return nil, err
	}
	state := stateOf(record)
	c.mu.Lock()
	c.generations[id] = max(c.generations[id], state.Generation)
	c.mu.Unlock()
	return map[string]any{id: history.NodeOutput{State: state}}, nil
}

func (c *client) changeNode(ctx context.Context, api clusterv1.ManagementServiceClient, id string, input history.NodeInput) (*clusterv1.NodeRecord, error) {
	switch input.Op {
	case history.SetLabel:
		answer, err := api.SetLabels(ctx, &clusterv1.SetLabelsRequest{NodeId: id, Labels: map[string]string{labels[input.Key]: input.Value}})
		return answer.GetNode(), err
	case history.AddRole:
		answer, err := api.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: id, Role: modelledRole, Configuration: c.modelled[id].GetConfiguration()})
		return answer.GetNode(), err
	case history.RemoveRole:
		answer, err := api.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: id, Role: modelledRole})
		return answer.GetNode(), err
	case history.SetRoles:
		roles := slices.Clone(c.others[id])
		if input.Role {
			roles = append(roles, proto.CloneOf(c.modelled[id]))
		}
		answer, err := api.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: id, Roles: roles, ExpectedGeneration: input.Expected})
		return answer.GetNode(), err
	}
	answer, err := api.GetNode(ctx, &clusterv1.GetNodeRequest{NodeId: id})
	return answer.GetNode().GetRecord(), err
}

// readNodes returns what a curator answers about every node.
func readNodes(ctx context.Context, api clusterv1.ManagementServiceClient) (map[string]any, error) {
	answer, err := api.ListNodes(ctx, &clusterv1.ListNodesRequest{})
	if err != nil {
		return nil, err
	}
	answers := make(map[string]any)
	for _, node := range answer.GetNodes() {
		answers[node.GetRecord().GetId()] = history.NodeOutput{State: stateOf(node.GetRecord())}
	}
	return answers, nil
}

func (c *client) callTickets(ctx context.Context, api clusterv1.ManagementServiceClient, input history.TicketInput) (map[string]any, error) {
	var output history.TicketOutput
	switch input.Op {
	case history.CreateTicket:
		answer, err := api.CreateTicket(ctx, &clusterv1.CreateTicketRequest{Note: input.Note})
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.tickets[input.Note] = answer.GetTicket().GetId()
		c.mu.Unlock()
	case history.RevokeTicket:
		c.mu.Lock()
		id := c.tickets[input.Note]
		c.mu.Unlock()
		_, err := api.RevokeTicket(ctx, &clusterv1.RevokeTicketRequest{TicketId: id})
		if status.Code(err) == codes.NotFound {
			output.Refusal, err = history.Absent, nil
		}
		if err != nil {
			return nil, err
		}
	default:
		tickets, err := readTickets(ctx, api, c.prefix)
		if err != nil {
			return nil, err
		}
		output.Notes = notesOf(tickets)
		c.mu.Lock()
		for _, ticket := range tickets {
			c.tickets[ticket.GetNote()] = ticket.GetId()
		}
		c.mu.Unlock()
	}
	return map[string]any{history.Tickets: output}, nil
}

// readTickets returns the tickets whose notes begin with a prefix, as a curator lists them.
func readTickets(ctx context.Context, api clusterv1.ManagementServiceClient, prefix string) ([]*clusterv1.Ticket, error) {
	answer, err := api.ListTickets(ctx, &clusterv1.ListTicketsRequest{})
	return slices.DeleteFunc(answer.GetTickets(), func(ticket *clusterv1.Ticket) bool { return !strings.HasPrefix(ticket.GetNote(), prefix+"-") }), err
}

// notesOf are the notes of tickets, sorted.
func notesOf(tickets []*clusterv1.Ticket) []string {
	notes := []string{}
	for _, ticket := range tickets {
		notes = append(notes, ticket.GetNote())
	}
	slices.Sort(notes)
	return notes
}
