// Package plugin says which roles the plugin kubernetes offers.
package plugin

import (
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/controller"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/worker"
	"github.com/reeveproject/reeve/sdk/role"
)

const version = "0.2.0"

// Plugin is the plugin.
func Plugin() role.Plugin {
	return role.Plugin{Name: "kubernetes", Version: version, Roles: []role.Role{pki.Role(), controller.Role(), worker.Role()}}
}
