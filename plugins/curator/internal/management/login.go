package management

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// maxLifetime bounds a certificate, which a client renews by itself: what was stolen from a client's disk is worth little.
	maxLifetime = time.Hour
	// defaultSession is a day's work, after which the key is needed again, and maxSession what a person may ask for.
	defaultSession = 12 * time.Hour
	maxSession     = 7 * 24 * time.Hour
)

// Login implements clusterv1.ManagementServiceServer. Who shows a key begins a session; who shows a certificate of a session stays in it, and gets no
// more of it than is left.
func (s *Service) Login(ctx context.Context, request *clusterv1.LoginRequest) (*clusterv1.LoginResponse, error) {
	if err := answer.Invalid(loginProblems(request)); err != nil {
		return nil, err
	}
	caller, _ := auth.CallerOf(ctx)
	person := caller.Person
	if person == nil {
		return nil, answer.Errorf(codes.PermissionDenied, "only operators and the owner log in")
	}
	now := s.config.Now()
	session := identity.Session{Operator: person.Operator, ID: person.ID}
	if person.Session != nil {
		session.Ends = person.Session.Ends
	} else {
		session.Ends = now.Add(orDefault(request.GetSessionSeconds(), defaultSession)).Truncate(time.Second)
	}
	authority, err := ca.Load(ctx, s.config.Store)
	if err != nil {
		return nil, err
	}
	chain, err := authority.IssueSession(session, request.GetPublicKey(), now, now.Add(orDefault(request.GetLifetimeSeconds(), maxLifetime)))
	if err != nil {
		return nil, err
	}
	if s.config.LoggedIn != nil {
		s.config.LoggedIn(person.Role)
	}
	return &clusterv1.LoginResponse{
		Certificate: chain, SessionEnds: timestamppb.New(session.Ends), Operator: person.Operator, Role: person.Role,
	}, nil
}

func loginProblems(request *clusterv1.LoginRequest) rules.Problems {
	problems := rules.PublicKey("public_key", request.GetPublicKey())
	for _, limit := range []struct {
		field   string
		seconds uint32
		most    time.Duration
	}{{"lifetime_seconds", request.GetLifetimeSeconds(), maxLifetime}, {"session_seconds", request.GetSessionSeconds(), maxSession}} {
		if time.Duration(limit.seconds)*time.Second > limit.most {
			problems = append(problems, rules.Problem{
				Field: limit.field, Message: fmt.Sprintf("%d s are more than the %d s that are allowed", limit.seconds, int(limit.most/time.Second)),
			})
		}
	}
	return problems
}

func orDefault(seconds uint32, otherwise time.Duration) time.Duration {
	if seconds == 0 {
		return otherwise
	}
	return time.Duration(seconds) * time.Second
}
