package worker

import (
	"strings"
	"testing"
)

func TestConfiguration(t *testing.T) {
	for _, test := range []struct {
		document string
		// wrong are the paths of the problems.
		wrong []string
	}{
		{`{}`, nil},
		{`{"labels": {"disk": "ssd", "example.com/rack": "7", "empty": ""}, "taints": ["gpu=yes:NoSchedule", "example.com/only:NoExecute"], "kubeletArguments": ["--v=2"]}`, nil},
		{`{"partsDirectories": ["bin", "/usr/../bin"]}`, []string{"/partsDirectories/0", "/partsDirectories/1"}},
		{`{"apiPort": 10250}`, []string{"/kubeletPort"}},
		{`{"kubeletPort": 0}`, []string{"/kubeletPort"}},
		{`{"labels": {"reeve.dev/node": "x"}}`, []string{"/labels"}},
		{`{"labels": {"a b": "x"}}`, []string{"/labels"}},
		{`{"labels": {"a": "-x"}}`, []string{"/labels"}},
		{`{"taints": ["gpu", "gpu:Never", "a/b/c:NoSchedule", "gpu=ä:NoSchedule"]}`, []string{"/taints/0", "/taints/1", "/taints/2", "/taints/3"}},
		{`{"resolvConf": "etc"}`, []string{"/resolvConf"}},
		{`{"kubeletArguments": ["--config=/x", "-v=2", "--v"]}`, []string{"/kubeletArguments/0", "/kubeletArguments/1", "/kubeletArguments/2"}},
		{`{"proxyArguments": ["--proxy-mode=ipvs"]}`, []string{"/proxyArguments/0"}},
		{`{"featureGates": {"A=B": true}}`, []string{"/featureGates"}},
		{`{"unknown": 1}`, []string{"unknown"}},
	} {
		err := configuration.Check([]byte(test.document))
		if err == nil != (len(test.wrong) == 0) {
			t.Errorf("%s: %v", test.document, err)
			continue
		}
		for _, path := range test.wrong {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, and not at %s", test.document, err, path)
			}
		}
	}
}

func TestLabelsOfTheNode(t *testing.T) {
	c := &Configuration{Labels: map[string]string{"b": "2", "a": "1"}}
	if got := c.labels("reeve-1"); got != "reeve.dev/node=reeve-1,a=1,b=2" {
		t.Error(got)
	}
}
