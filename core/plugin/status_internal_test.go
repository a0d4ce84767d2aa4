package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// flood is a role that states a status as often as it is read.
type flood struct {
	rolev1.RoleServiceClient
	next func(n int) (*rolev1.WatchResponse, error)
	read int
}

func (f *flood) Watch(ctx context.Context, _ *rolev1.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[rolev1.WatchResponse], error) {
	return &floodStream{flood: f, ctx: ctx}, nil
}

type floodStream struct {
	grpc.ServerStreamingClient[rolev1.WatchResponse]
	flood *flood
	ctx   context.Context
}

func (s *floodStream) Recv() (*rolev1.WatchResponse, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	s.flood.read++
	return s.flood.next(s.flood.read)
}

func bareInstance() *Instance {
	i := &Instance{session: &session{launcher: &Launcher{patience: DefaultPatience()}, remit: &Remit{InstanceID: "n/r/1", Role: "r"}}, generation: 1}
	i.status = event.New(i.statusWith(rolev1.RoleState_ROLE_STATE_STARTING, ""))
	return i
}

// counted counts the changes of a value until the context ends.
func counted(ctx context.Context, value *event.Value[*rolev1.WatchResponse]) (count func() int) {
	done, n := make(chan struct{}), 0
	go func() {
		defer close(done)
		for watcher := value.Watch(); ; n++ {
			if _, err := watcher.Next(ctx); err != nil {
				return
			}
		}
	}()
	return func() int { <-done; return n }
}

func TestAStatusFloodCostsTheCoreLittle(t *testing.T) {
	for name, test := range inorder.Of(map[string]struct{ size, mostRead int }{
		"small": {0, (heardAtOnce + 10*heardPerSecond) / messageCost},
		"large": {limits.Value, (heardAtOnce + 10*heardPerSecond) / (limits.Values * limits.Value)},
	}) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := bareInstance()
				values := map[string]string{}
				if test.size > 0 {
					for n := range limits.Values {
						values[fmt.Sprint("v", n)] = strings.Repeat("x", test.size)
					}
				}
				role := &flood{next: func(n int) (*rolev1.WatchResponse, error) {
					status := i.statusWith(rolev1.RoleState_ROLE_STATE_READY, fmt.Sprint(n))
					status.Values = values
					return status, nil
				}}
				life, end := context.WithTimeout(t.Context(), 10*time.Second)
				defer end()
				changes := counted(life, i.status)
				i.follow(life, life, role)
				if n := changes(); n < min(100, role.read/2) || n > changesAtOnce+10*changesPerSecond+2 {
					t.Errorf("the status changed %d times in 10 s", n)
				}
				if role.read > test.mostRead+1 || role.read < test.mostRead/2 {
					t.Errorf("%d messages were read in 10 s, want up to %d", role.read, test.mostRead)
				}
				if last, _ := i.status.Get(); last.GetReason() != fmt.Sprint(role.read) {
					t.Errorf("of %d messages the last is not the status, but %s", role.read, last.GetReason())
				}
			})
		})
	}
}

func TestTheLastWordOfAFloodIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := bareInstance()
		role := &flood{next: func(n int) (*rolev1.WatchResponse, error) {
			state := rolev1.RoleState_ROLE_STATE_READY
			if n == 1000 {
				state = rolev1.RoleState_ROLE_STATE_FAILED
			}
			if n > 1000 {
				return nil, errors.New("the role has ended")
			}
			return i.statusWith(state, "no luck"), nil
		}}
		began := time.Now()
		i.follow(t.Context(), t.Context(), role)
		if last, _ := i.status.Get(); last.GetState() != rolev1.RoleState_ROLE_STATE_FAILED || last.GetReason() != "no luck" {
			t.Errorf("the status is %v", last)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// What a role said before it ended is its status, also if the core reads it only when the process is gone.
func TestTheLastWordOfTheDeadIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := bareInstance()
		life, end := context.WithCancel(t.Context())
		role := &flood{next: func(n int) (*rolev1.WatchResponse, error) {
			switch n {
			case 1:
				end()
				synctest.Wait() // whoever is told of the end has acted on it
				return i.statusWith(rolev1.RoleState_ROLE_STATE_READY, ""), nil
			case 2:
				return i.statusWith(rolev1.RoleState_ROLE_STATE_FAILED, "no luck"), nil
			}
			return nil, errors.New("the role has ended")
		}}
		i.follow(t.Context(), life, role)
		if last, _ := i.status.Get(); last.GetState() != rolev1.RoleState_ROLE_STATE_FAILED || last.GetReason() != "no luck" {
			t.Errorf("the status is %v", last)
		}
	})
}

func TestAStatusBeyondTheBoundsBreaksTheProtocol(t *testing.T) {
	t.Parallel()
	i := bareInstance()
	valid := func() *rolev1.WatchResponse {
		status := i.statusWith(rolev1.RoleState_ROLE_STATE_DEGRADED, strings.Repeat("\n", 2*limits.Reason))
		status.Values = map[string]string{strings.Repeat("n", limits.Name): strings.Repeat("\x00", limits.Value)}
		status.Endpoints = []*rolev1.Endpoint{{Name: "e", Address: strings.Repeat("a", limits.Address)}}
		return status
	}
	status := valid()
	if err := i.check(status); err != nil || len(status.GetReason()) > limits.Reason {
		t.Fatalf("%v; the reason has %d bytes", err, len(status.GetReason()))
	}
	for want, spoil := range map[string]func(*rolev1.WatchResponse){
		"33 endpoints": func(s *rolev1.WatchResponse) { s.Endpoints = make([]*rolev1.Endpoint, limits.Endpoints+1) },
		`endpoint ""`:  func(s *rolev1.WatchResponse) { s.Endpoints[0].Name = "" },
		`endpoint "e"`: func(s *rolev1.WatchResponse) { s.Endpoints[0].Address += "a" },
		`endpoint "f"`: func(s *rolev1.WatchResponse) { s.Endpoints[0] = &rolev1.Endpoint{Name: "f", Address: "\x1b[2J"} },
		"33 values": func(s *rolev1.WatchResponse) {
			for n := range limits.Values {
				s.Values[fmt.Sprint(n)] = "x"
			}
		},
		`value "a\\nb"`: func(s *rolev1.WatchResponse) { s.Values = map[string]string{"a\nb": "x"} },
		`value "big"`: func(s *rolev1.WatchResponse) {
			s.Values = map[string]string{"big": strings.Repeat("x", limits.Value+1)}
		},
		"state 9":    func(s *rolev1.WatchResponse) { s.State = 9 },
		"generation": func(s *rolev1.WatchResponse) { s.ConfigurationGeneration++ },
	} {
		status := proto.CloneOf(valid())
		spoil(status)
		if err := i.check(status); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got: %v", want, err)
		}
	}
}
