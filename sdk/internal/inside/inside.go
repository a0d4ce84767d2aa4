// Package inside lets package roletest make an instance's host in the test's process. It owns no state but the function that package role sets.
package inside

import (
	"github.com/hashicorp/go-hclog"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// NewHost makes a *role.Host for a start request, the status that it reports to the core, and a function that ends both. Package role sets it.
var NewHost func(request *rolev1.StartRequest, log hclog.Logger) (host any, status *event.Value[*rolev1.WatchResponse], end func(), err error)
