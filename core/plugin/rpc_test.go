package plugin_test

import (
	gocontext "context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// raw is a plugin that does without the SDK, and behaves as said in calls of the role protocol.
func raw(rpcs map[string]string) plugintest.Variant {
	variant := everything
	variant.Before, variant.RPCs = "raw", rpcs
	return variant
}

// start launches role "one" of a variant.
func (n *testNode) start(t testing.TB, variant plugintest.Variant) (*plugin.Instance, error) {
	t.Helper()
	s := spec(n.add(t, variant), variant, plugintest.Configuration{})
	remit, err := n.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return n.launcher.Launch(t.Context(), remit, s, "/nowhere")
}

func TestPluginsThatHang(t *testing.T) {
	t.Parallel()
	t.Run("Describe", func(t *testing.T) {
		t.Parallel()
		node := newNode(t)
		node.patience(t, plugin.Patience{Describe: time.Second})
		_, err := node.launcher.Describe(t.Context(), node.add(t, raw(map[string]string{"Describe": plugintest.Hang})))
		var not *plugin.NotAPluginError
		if !errors.As(err, &not) || !strings.Contains(err.Error(), "it did not answer within 1s") {
			t.Errorf("error %v", err)
		}
		node.nothingLeft(t)
	})
	t.Run("Start", func(t *testing.T) {
		t.Parallel()
		node := newNode(t)
		node.patience(t, plugin.Patience{Start: time.Second})
		_, err := node.start(t, raw(map[string]string{"Start": plugintest.Hang}))
		var launch *plugin.LaunchError
		if !errors.As(err, &launch) || !strings.HasPrefix(launch.Cause(), "does not answer Start within 1s") || launch.Exit != nil || launch.Node {
			t.Errorf("error %v", err)
		}
		node.nothingLeft(t)
	})
	t.Run("Watch", func(t *testing.T) {
		t.Parallel()
		node := newNode(t)
		node.patience(t, plugin.Patience{Word: time.Second, Silence: time.Millisecond})
		instance, err := node.start(t, raw(map[string]string{"Watch": plugintest.Hang}))
		if err != nil {
			t.Fatal(err)
		}
		status := waitState(t, instance, rolev1.RoleState_ROLE_STATE_FAILED)
		if want := "it does not state its status any more (it stated nothing within 1s)"; status.GetReason() != want {
			t.Errorf("reason %q", status.GetReason())
		}
		if err := instance.Stop(t.Context(), time.Second); err != nil {
			t.Error(err)
		}
		node.nothingLeft(t)
	})
	t.Run("others", func(t *testing.T) {
		t.Parallel()
		node := newNode(t)
		instance, err := node.start(t, raw(map[string]string{
			"Stop": plugintest.Hang, "CheckHealth": plugintest.Hang, "GetMetrics": plugintest.Hang,
		}))
		if err != nil {
			t.Fatal(err)
		}
		waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
		for name, call := range map[string]func(gocontext.Context) error{
			"CheckHealth": instance.CheckHealth,
			"GetMetrics": func(ctx gocontext.Context) error {
				_, err := rolev1.NewRoleServiceClient(instance.Conn()).GetMetrics(ctx, &rolev1.GetMetricsRequest{})
				return err
			},
		} {
			ctx, cancel := gocontext.WithTimeout(t.Context(), 100*time.Millisecond)
			if err := call(ctx); !errors.Is(err, gocontext.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Canceled {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
		if err := instance.Stop(t.Context(), 100*time.Millisecond); err != nil {
			t.Error(err)
		}
		node.nothingLeft(t)
	})
}

func TestPluginsThatAnswerTooMuch(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	node.patience(t, plugin.Patience{Silence: time.Millisecond})
	variant := raw(map[string]string{"Describe": plugintest.Huge, "Watch": plugintest.Huge, "GetMetrics": plugintest.Huge})
	_, err := node.launcher.Describe(t.Context(), node.add(t, variant))
	var not *plugin.NotAPluginError
	if !errors.As(err, &not) || !strings.Contains(err.Error(), "received message larger than max") {
		t.Errorf("error %v", err)
	}
	instance, err := node.start(t, variant)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rolev1.NewRoleServiceClient(instance.Conn()).GetMetrics(t.Context(), &rolev1.GetMetricsRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("error %v", err)
	}
	if status := waitState(t, instance, rolev1.RoleState_ROLE_STATE_FAILED); !strings.Contains(status.GetReason(), "received message larger than max") {
		t.Errorf("reason %q", status.GetReason())
	}
	if err := instance.Stop(t.Context(), time.Second); err != nil {
		t.Error(err)
	}
	node.nothingLeft(t)
}

func TestHealthIsAsked(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	for how, want := range map[string]string{"": "", plugintest.Absent: "", plugintest.Refuse: "no, thanks"} {
		instance, err := node.start(t, raw(map[string]string{"CheckHealth": how}))
		if err != nil {
			t.Fatal(err)
		}
		if err := instance.CheckHealth(t.Context()); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%q: %v", how, err)
		}
		if err := instance.Stop(t.Context(), time.Second); err != nil {
			t.Error(err)
		}
		if err := instance.CheckHealth(t.Context()); err == nil {
			t.Error("a dead role is well")
		}
	}
}

func TestPluginsOfOtherVersions(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	line := func(line string) plugintest.Variant {
		variant := everything
		variant.Before, variant.Line = "line", line
		return variant
	}
	speaks := func(protocols ...string) plugintest.Variant {
		variant := raw(nil)
		variant.Protocols = protocols
		return variant
	}
	for name, test := range inorder.Of(map[string]struct {
		variant     plugintest.Variant
		upgradeCore bool
		says        string
		// launches says that it cannot be told when it is launched, but before.
		launches bool
	}{
		"older go-plugin":        {line("0|1|unix|/x|grpc|"), false, "go-plugin's handshake 0, this core speaks 1: upgrade the plugin: build it with a newer sdk", false},
		"newer go-plugin":        {line("2|1|unix|/x|grpc||true"), true, "go-plugin's handshake 2, this core speaks 1: upgrade reeved on this node", false},
		"much newer go-plugin":   {line("3|other"), true, "go-plugin's handshake 3, this core speaks 1: upgrade reeved on this node", false},
		"older handshake":        {line("1|0|unix|/x|grpc|"), false, "the plugin handshake 0, this core speaks 1: upgrade the plugin", false},
		"newer handshake":        {line("1|2|unix|/x|grpc|"), true, "the plugin handshake 2, this core speaks 1: upgrade reeved", false},
		"newer role protocol":    {speaks("reeve.role.v2", "reeve.role.v3"), true, "the role protocol reeve.role.v2, reeve.role.v3, this core speaks reeve.role.v1: upgrade reeved", true},
		"no role protocol":       {speaks("example.role.v1"), false, "the role protocol none, this core speaks reeve.role.v1: upgrade the plugin", true},
		"another role service":   {raw(map[string]string{"Describe": plugintest.Absent}), true, "the role protocol in another version only, this core speaks reeve.role.v1: upgrade reeved", false},
		"old and new, both said": {speaks("reeve.role.v2", "reeve.role.v1"), false, "", true},
	}) {
		t.Run(name, func(t *testing.T) {
			digest := node.add(t, test.variant)
			check := func(err error) {
				t.Helper()
				var version *store.VersionError
				if test.says == "" {
					if err != nil {
						t.Error(err)
					}
				} else if !errors.As(err, &version) || version.UpgradeCore != test.upgradeCore || !strings.Contains(err.Error(), test.says) {
					t.Errorf("error %v", err)
				}
			}
			_, err := node.launcher.Describe(t.Context(), digest)
			check(err)
			if !test.launches {
				_, err := node.start(t, test.variant)
				check(err)
			}
			node.nothingLeft(t)
		})
	}
}
