package target

import (
	"encoding/json"
	"strings"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// balance is how calls are spread: any curator serves any call, and one that does not answer, or says that its store is away, is no reason to fail while another one
// works. What only reads is tried again with the next curator; what changes something is not, unless it never left this machine.
var balance = balanceConfig()

// attempts is how often a call that reads is made at most: there are as many curators as members of a store usually.
const attempts = 4

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
			MaxAttempts: attempts, InitialBackoff: "0.05s", MaxBackoff: "0.5s", BackoffMultiplier: 2, RetryableStatusCodes: []string{"UNAVAILABLE"},
		}}},
	})
	if err != nil {
		panic(err) // Strings and numbers are always a document.
	}
	return string(config)
}
