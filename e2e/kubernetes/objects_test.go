package kubernetes_test

type object = map[string]any

// illFile is the file that makes a pod of deployment not well for as long as it is there.
const illFile = "/scratch/ill"

// deployment is one of the program hello, one pod a node as far as it can be.
func deployment(name string, replicas int) object {
	labels := object{"app": name}
	ready := object{"httpGet": object{"path": "/healthz", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5}
	alive := object{"httpGet": object{"path": "/healthz", "port": 8080}, "periodSeconds": 5, "timeoutSeconds": 10, "failureThreshold": 10}
	return object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": name},
		"spec": object{"replicas": replicas, "selector": object{"matchLabels": labels}, "template": object{"metadata": object{"labels": labels}, "spec": object{
			"topologySpreadConstraints":     []object{{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": object{"matchLabels": labels}}},
			"terminationGracePeriodSeconds": 5,
			"containers": []object{{
				"name": "hello", "image": hello, "imagePullPolicy": "Never", "readinessProbe": ready, "livenessProbe": alive,
				"env":             []object{{"name": "ILL", "value": illFile}},
				"ports":           []object{{"containerPort": 8080}},
				"volumeMounts":    []object{{"name": "said", "mountPath": "/said"}, {"name": "scratch", "mountPath": "/scratch"}},
				"securityContext": object{"runAsNonRoot": true, "runAsUser": 65532, "allowPrivilegeEscalation": false, "capabilities": object{"drop": []string{"ALL"}}},
			}},
			"volumes": []object{{"name": "said", "configMap": object{"name": "said"}}, {"name": "scratch", "emptyDir": object{}}},
		}}},
	}
}

// livePod is what is looked at of a pod.
type livePod struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Node string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		IP         string `json:"podIP"`
		Phase      string `json:"phase"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		Containers []struct {
			ID       string         `json:"containerID"`
			Restarts int            `json:"restartCount"`
			State    map[string]any `json:"state"`
			Last     struct {
				Terminated struct {
					Reason string `json:"reason"`
				} `json:"terminated"`
			} `json:"lastState"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

func (p livePod) ready() bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "True"
		}
	}
	return false
}
