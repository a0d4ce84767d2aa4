package target

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// balance is how calls are spread: any curator serves any call, and one that does not answer, or says that its store is away, is no reason to fail while another one
// works. What only reads is tried again with the next curator; what changes something is not, unless it never left this machine, or the curator says that it has not begun with
// it (unbegun).
var balance = balanceConfig()

// attempts is how often a call is made at most: there are as many curators as members of a store usually. In the pauses between them others may come to be connected.
const (
	attempts   = 4
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
	growth     = 2
)

// method and retry are as gRPC's service configuration has them.
type method struct {
	Service string `json:"service"`
	Method  string `json:"method"`
}

type retry struct {
	MaxAttempts          int      `json:"maxAttempts"`
	InitialBackoff       string   `json:"initialBackoff"`
	MaxBackoff           string   `json:"maxBackoff"`
	BackoffMultiplier    float64  `json:"backoffMultiplier"`
	RetryableStatusCodes []string `json:"retryableStatusCodes"`
}

func balanceConfig() string {
	service := clusterv1.ManagementService_ServiceDesc
	var reads []method
	add := func(name string) {
		if strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Watch") {
			reads = append(reads, method{Service: service.ServiceName, Method: name})
		}
	}
	for _, one := range service.Methods {
		add(one.MethodName)
	}
	for _, one := range service.Streams {
		add(one.StreamName)
	}
	config, err := json.Marshal(map[string]any{
		"loadBalancingConfig": []any{map[string]any{"round_robin": struct{}{}}},
		"methodConfig": []any{map[string]any{"name": reads, "retryPolicy": retry{
			MaxAttempts: attempts, InitialBackoff: seconds(firstPause), MaxBackoff: seconds(lastPause), BackoffMultiplier: growth, RetryableStatusCodes: []string{"UNAVAILABLE"},
		}}},
	})
	if err != nil {
		panic(err) // Strings and numbers are always a document.
	}
	return string(config)
}

// seconds is a duration as gRPC's service configuration has it.
func seconds(duration time.Duration) string { return fmt.Sprintf("%gs", duration.Seconds()) }

// again makes a call again with the next curator if the one before says that it has not begun with it.
func again(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	pause := firstPause
	for made := 1; ; made++ {
		err := invoke(ctx, method, request, reply, conn, options...)
		if made == attempts || !unbegun(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		pause = min(pause*growth, lastPause)
	}
}

// unbegun reports whether a curator has said that nothing of a call was done, and that another curator may be asked at once.
func unbegun(err error) bool {
	said := status.Convert(err)
	if said.Code() != codes.Unavailable {
		return false
	}
	for _, detail := range said.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok && retry.GetRetryDelay().AsDuration() == 0 {
			return true
		}
	}
	return false
}
