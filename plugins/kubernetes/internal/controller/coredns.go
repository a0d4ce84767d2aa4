package controller

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/image"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/process"
)

// The image of CoreDNS, which every worker has from its own node: it is never pulled.
const coreDNSImage = image.CoreDNSReference

// What the objects of CoreDNS are called. Others know the service, and the label, by these names.
const (
	dnsNamespace = "kube-system"
	dnsObject    = "coredns"
	dnsService   = "kube-dns"
	dnsRole      = "system:coredns"
)

// Where CoreDNS listens in its pods. The service is at port 53: the lower ports would take a capability.
const (
	dnsPort       = 1053
	dnsHealthPort = 8080
	dnsReadyPort  = 8181
)

// dnsReplicas is how many pods of CoreDNS there are, until somebody says otherwise.
const dnsReplicas = 2

// dnsUser is a user without a name or any right.
const dnsUser = 65532

// dnsObjects are where the objects of CoreDNS are in the API, and what the role says of them.
func (c *Configuration) dnsObjects(replicas int) []permission {
	core, apps := "/api/v1/namespaces/"+dnsNamespace+"/", "/apis/apps/v1/namespaces/"+dnsNamespace+"/"
	role := roleOf(dnsRole,
		rule([]string{""}, []string{"services", "pods", "namespaces"}, "list", "watch"),
		rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, "list", "watch"))
	bound := binding(dnsRole, dnsRole, "ServiceAccount", dnsObject)
	bound.object["subjects"] = []object{{"kind": "ServiceAccount", "name": dnsObject, "namespace": dnsNamespace}}
	return []permission{
		{core + "serviceaccounts", object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": dnsMeta(dnsObject)}},
		role,
		bound,
		{core + "services", c.dnsServiceObject()},
		{apps + "deployments", dnsDeployment(replicas)},
	}
}

// dnsConfigPath and dnsConfig are the configuration of CoreDNS. It is made once: whoever operates the cluster changes it.
const dnsConfigPath = "/api/v1/namespaces/" + dnsNamespace + "/configmaps"

func (c *Configuration) dnsConfig() object {
	return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": dnsMeta(dnsObject), "data": object{"Corefile": fmt.Sprintf(`.:%d {
    errors
    health :%d {
        lameduck 5s
    }
    ready :%d
    kubernetes %s in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    forward . /etc/resolv.conf {
        max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
`, dnsPort, dnsHealthPort, dnsReadyPort, c.ClusterDomain)}}
}

// dnsLabels are by what the service finds the pods.
func dnsLabels() object { return object{"k8s-app": dnsService} }

func dnsMeta(name string) object {
	return object{"name": name, "namespace": dnsNamespace, "labels": dnsLabels()}
}

func (c *Configuration) dnsServiceObject() object {
	var addresses, families []string
	for _, address := range c.dnsAddresses() {
		addresses = append(addresses, address.String())
		family := "IPv6"
		if address.Is4() {
			family = "IPv4"
		}
		families = append(families, family)
	}
	policy := "SingleStack"
	if len(families) > 1 {
		policy = "RequireDualStack"
	}
	meta := dnsMeta(dnsService)
	meta["labels"] = object{"k8s-app": dnsService, "kubernetes.io/name": "CoreDNS"}
	return object{"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": object{
		"clusterIP": addresses[0], "clusterIPs": addresses, "ipFamilies": families, "ipFamilyPolicy": policy,
		"selector": dnsLabels(),
		"ports": []object{
			{"name": "dns", "port": 53, "targetPort": "dns", "protocol": "UDP"},
			{"name": "dns-tcp", "port": 53, "targetPort": "dns-tcp", "protocol": "TCP"},
		},
	}}
}

func dnsDeployment(replicas int) object {
	return object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": dnsMeta(dnsObject), "spec": object{
		"replicas": replicas,
		"selector": object{"matchLabels": dnsLabels()},
		"strategy": object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": 1}},
		"template": object{"metadata": object{"labels": dnsLabels()}, "spec": dnsPod()},
	}}
}

func dnsPod() object {
	return object{
		"serviceAccountName": dnsObject,
		"priorityClassName":  "system-cluster-critical",
		// What is no name of the cluster's is asked of whom the node asks.
		"dnsPolicy":    "Default",
		"nodeSelector": object{"kubernetes.io/os": "linux"},
		"tolerations": []object{
			{"key": "CriticalAddonsOnly", "operator": "Exists"},
			{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
		},
		"affinity": object{"podAntiAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []object{{
			"weight":          100,
			"podAffinityTerm": object{"labelSelector": object{"matchLabels": dnsLabels()}, "topologyKey": "kubernetes.io/hostname"},
		}}}},
		"securityContext": object{
			"runAsNonRoot": true, "runAsUser": dnsUser, "runAsGroup": dnsUser, "seccompProfile": object{"type": "RuntimeDefault"},
		},
		"containers": []object{{
			"name": dnsObject, "image": coreDNSImage, "imagePullPolicy": "Never",
			"args": []string{"-conf", "/etc/coredns/Corefile"},
			"env":  []object{{"name": "GOGC", "value": process.GOGC}},
			"resources": object{
				"requests": object{"cpu": "100m", "memory": "70Mi"}, "limits": object{"memory": "170Mi"},
			},
			"volumeMounts": []object{{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}},
			"ports": []object{
				{"name": "dns", "containerPort": dnsPort, "protocol": "UDP"},
				{"name": "dns-tcp", "containerPort": dnsPort, "protocol": "TCP"},
			},
			"securityContext": object{
				"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": object{"drop": []string{"ALL"}},
			},
			"livenessProbe": object{
				"httpGet":             object{"path": "/health", "port": dnsHealthPort, "scheme": "HTTP"},
				"initialDelaySeconds": 30, "timeoutSeconds": 5, "failureThreshold": 5,
			},
			"readinessProbe": object{"httpGet": object{"path": "/ready", "port": dnsReadyPort, "scheme": "HTTP"}, "periodSeconds": 2},
		}},
		"volumes": []object{{"name": "config", "configMap": object{"name": dnsObject, "items": []object{{"key": "Corefile", "path": "Corefile"}}}}},
	}
}

// coreDNS makes CoreDNS, or brings it to the version of this plugin. How many pods it has, and its configuration, are left as they are.
func (c *Configuration) coreDNS(ctx context.Context, api *client) error {
	if !c.CoreDNS {
		return nil
	}
	var present struct {
		Spec struct {
			Replicas int `json:"replicas"`
		} `json:"spec"`
	}
	replicas := dnsReplicas
	found, err := api.get(ctx, c.Port, "/apis/apps/v1/namespaces/"+dnsNamespace+"/deployments/"+dnsObject, &present)
	if err != nil {
		return fmt.Errorf("look for CoreDNS: %w", err)
	}
	if found {
		replicas = present.Spec.Replicas
	}
	if err := api.create(ctx, c.Port, dnsConfigPath, c.dnsConfig()); err != nil {
		return fmt.Errorf("make the configuration of CoreDNS: %w", err)
	}
	for _, each := range c.dnsObjects(replicas) {
		name := each.object["metadata"].(object)["name"].(string)
		if err := api.apply(ctx, c.Port, path.Join(each.path, name), each.object); err != nil {
			return fmt.Errorf("apply the %s %s of CoreDNS: %w", strings.ToLower(each.object["kind"].(string)), name, err)
		}
	}
	return nil
}
