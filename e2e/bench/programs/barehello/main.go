// The bare counterpart of the plugin hello: go-plugin as its documentation shows it, with a service of one method that answers.
package main

import (
	"context"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/role"
)

type hello struct {
	plugin.NetRPCUnsupportedPlugin
	rolev1.UnimplementedRoleServiceServer
}

// GRPCServer implements plugin.GRPCPlugin.
func (h *hello) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	rolev1.RegisterRoleServiceServer(server, h)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin.
func (h *hello) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// Describe is the first call that is answered.
func (h *hello) Describe(context.Context, *rolev1.DescribeRequest) (*rolev1.DescribeResponse, error) {
	return &rolev1.DescribeResponse{Manifest: &rolev1.Manifest{Name: "hello", Version: "0.1.0"}}, nil
}

func main() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: role.Handshake,
		Plugins:         plugin.PluginSet{role.PluginName: &hello{}},
		GRPCServer:      plugin.DefaultGRPCServer,
		Logger:          hclog.NewNullLogger(),
	})
}
