package role

import (
	"maps"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/sdk/event"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// statusValue is the status of an instance. Its messages are never changed after Set.
type statusValue struct {
	value event.Value[*rolev1.WatchResponse]
}

func newStatus(request *rolev1.StartRequest) *statusValue {
	status := &statusValue{}
	status.value.Set(&rolev1.WatchResponse{
		InstanceId:              request.GetInstanceId(),
		Role:                    request.GetRole(),
		ConfigurationGeneration: request.GetConfigurationGeneration(),
		State:                   rolev1.RoleState_ROLE_STATE_STARTING,
	})
	return status
}

// enter changes the state. A final state is never left, and Stopping only for a final one.
func (s *statusValue) enter(state rolev1.RoleState, reason string) {
	s.value.Update(func(now *rolev1.WatchResponse) *rolev1.WatchResponse {
		if final(now) || now.GetState() == rolev1.RoleState_ROLE_STATE_STOPPING && !finalState(state) {
			return now
		}
		next := proto.CloneOf(now)
		next.State = state
		next.Reason = limits.Cut(strings.ToValidUTF8(reason, "\uFFFD"), limits.Reason)
		return next
	})
}

// setEndpoint sets an endpoint or, with an empty address, withdraws it. It returns false if it does not fit.
func (s *statusValue) setEndpoint(name, address string) bool {
	room := true
	s.value.Update(func(now *rolev1.WatchResponse) *rolev1.WatchResponse {
		next := proto.CloneOf(now)
		next.Endpoints = nil
		placed := address == ""
		for _, endpoint := range now.GetEndpoints() {
			if endpoint.GetName() != name {
				next.Endpoints = append(next.Endpoints, endpoint)
				continue
			}
			if !placed {
				next.Endpoints = append(next.Endpoints, &rolev1.Endpoint{Name: name, Address: address})
				placed = true
			}
		}
		if !placed {
			if len(next.Endpoints) >= limits.Endpoints {
				room = false
				return now
			}
			next.Endpoints = append(next.Endpoints, &rolev1.Endpoint{Name: name, Address: address})
		}
		if address != "" && published(next) > limits.Published {
			room = false
			return now
		}
		return next
	})
	return room
}

// setValue sets a published value or, with an empty value, withdraws it. It returns false if it does not fit.
func (s *statusValue) setValue(name, value string) bool {
	room := true
	s.value.Update(func(now *rolev1.WatchResponse) *rolev1.WatchResponse {
		values := maps.Clone(now.GetValues())
		if values == nil {
			values = make(map[string]string)
		}
		delete(values, name)
		if value != "" {
			if len(values) >= limits.Values {
				room = false
				return now
			}
			values[name] = value
		}
		next := proto.CloneOf(now)
		next.Values = values
		if value != "" && published(next) > limits.Published {
			room = false
			return now
		}
		return next
	})
	return room
}

// published is the size of an instance's part of the directory in bytes.
func published(status *rolev1.WatchResponse) int {
	return proto.Size(&rolev1.WatchResponse{Endpoints: status.GetEndpoints(), Values: status.GetValues()})
}

func final(status *rolev1.WatchResponse) bool { return finalState(status.GetState()) }

func finalState(state rolev1.RoleState) bool {
	return state == rolev1.RoleState_ROLE_STATE_FAILED || state == rolev1.RoleState_ROLE_STATE_STOPPED
}
