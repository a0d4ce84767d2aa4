// Package inside lets package roletest make the host of an instance in the process of the test. It owns no state but the function that package role sets.
package inside

import (
	"github.com/hashicorp/go-hclog"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// NewHost makes a *role.Host as one that is started by the request has it, the status that it tells to the core, and what ends both. Package role sets it.
var NewHost func(request *rolev1.StartRequest, log hclog.Logger) (host any, status *event.Value[*rolev1.WatchResponse], end func(), err error)
