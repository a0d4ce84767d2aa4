package role

import (
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/internal/inside"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// init gives package roletest access to newHost.
func init() {
	inside.NewHost = func(request *rolev1.StartRequest, log hclog.Logger) (any, *event.Value[*rolev1.WatchResponse], func(), error) {
		status, stopping := newStatus(request), make(chan struct{})
		host, err := newHost(request, status, log, stopping)
		if err != nil {
			return nil, nil, nil, err
		}
		return host, &status.value, sync.OnceFunc(func() {
			close(stopping)
			host.close()
		}), nil
	}
}
