package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Keys is how many labels of a node are modelled.
const Keys = 2

// NodeState is what is modelled of the record of a node.
type NodeState struct {
	// Generation grows by one with every change of the record: no write is made twice, or by halves, or on what was not the newest.
	Generation uint64
	// Labels are the values of the modelled labels; empty: the node does not have the label.
	Labels [Keys]string
	// Role says whether the node has the modelled role.
	Role bool
}

// NodeOp is what a call does with a node.
type NodeOp int

const (
	// GetNode reads.
	GetNode NodeOp = iota
	// SetLabel sets a label, or takes it away.
	SetLabel
	// AddRole and RemoveRole assign the role, and take it away.
	AddRole
	RemoveRole
	// SetRoles does either, provided that the record has a generation.
	SetRoles
)

// String is the operation for people.
func (op NodeOp) String() string {
	return [...]string{"GetNode", "SetLabel", "AddRole", "RemoveRole", "SetRoles"}[op]
}

// NodeInput is what a call asks of a node.
type NodeInput struct {
	Op NodeOp
	// Key and Value are the label's.
	Key   int
	Value string
	// Role and Expected are of SetRoles: whether the node is to have the role, and the generation that it must have.
	Role     bool
	Expected uint64
}

// String is the input for people.
func (i NodeInput) String() string {
	switch i.Op {
	case SetLabel:
		return fmt.Sprintf("SetLabel(%d, %q)", i.Key, i.Value)
	case SetRoles:
		return fmt.Sprintf("SetRoles(role %t if %d)", i.Role, i.Expected)
	}
	return i.Op.String()
}

// Refusal is an answer that says something of the state, and changes nothing.
type Refusal int

const (
	// None: it was done.
	None Refusal = iota
	// Absent: there is no such thing.
	Absent
	// Changed: it does not have the generation.
	Changed
)

// NodeOutput is what a call was answered about a node: the record as it then is.
type NodeOutput struct {
	Refusal Refusal
	State   NodeState
}

// String is the output for people.
func (o NodeOutput) String() string {
	switch o.Refusal {
	case Absent:
		return "absent"
	case Changed:
		return "changed"
	}
	return fmt.Sprintf("%+v", o.State)
}

// apply is what becomes of a state. refusal is what the caller is to be answered.
func (i NodeInput) apply(before NodeState) (after NodeState, refusal Refusal) {
	after = before
	switch i.Op {
	case SetLabel:
		after.Labels[i.Key] = i.Value
	case AddRole:
		after.Role = true
	case RemoveRole:
		if !before.Role {
			return before, Absent
		}
		after.Role = false
	case SetRoles:
		if before.Generation != i.Expected {
			return before, Changed
		}
		after.Role = i.Role
	}
	if after != before {
		after.Generation++
	}
	return after, None
}

// nodeModel is a node that was in a state when the history began.
func nodeModel(initial NodeState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, output any) (bool, any) {
			after, refusal := input.(NodeInput).apply(state.(NodeState))
			if output == nil {
				return true, after
			}
			answer := output.(NodeOutput)
			if answer.Refusal != None || refusal != None {
				return answer.Refusal == refusal, after
			}
			return answer.State == after, after
		},
		Hash:              func(state any) uint64 { return state.(NodeState).Generation },
		DescribeOperation: describe,
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// describe says of an operation what was asked and what was answered.
func describe(input, output any) string {
	if output == nil {
		output = Unknown
	}
	return fmt.Sprintf("%v -> %v", input, output)
}
