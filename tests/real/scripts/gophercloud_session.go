// Makes calls to Ironic with gophercloud. Prints one line of JSON with their results.
//
// The only argument is a JSON object: `endpoint`, that of the API without `/v1`; `version`, the microversion
// (null: the newest one that the document `/v1` names, as programs with gophercloud find it out); `calls`,
// names. A call that fails does not end the session: its entry is `{"error", "text"}`. The printed `version`
// is the microversion that the calls were made at; empty: none, which Ironic takes for 1.1.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/gophercloud/gophercloud/openstack/baremetal/apiversions"
	"github.com/gophercloud/gophercloud/openstack/baremetal/noauth"
	"github.com/gophercloud/gophercloud/openstack/baremetal/v1/nodes"
)

type plan struct {
	Endpoint string   `json:"endpoint"`
	Version  *string  `json:"version"`
	Calls    []string `json:"calls"`
}

type result map[string]interface{}

func failed(err error) result {
	return result{"error": fmt.Sprintf("%T", err), "text": err.Error()}
}

func main() {
	var todo plan
	if err := json.Unmarshal([]byte(os.Args[1]), &todo); err != nil {
		panic(err)
	}
	client, err := noauth.NewBareMetalNoAuth(noauth.EndpointOpts{IronicEndpoint: todo.Endpoint})
	if err != nil {
		panic(err)
	}
	results := []result{}
	if todo.Version != nil {
		client.Microversion = *todo.Version
	} else if found, err := apiversions.Get(client, "v1").Extract(); err != nil {
		results = append(results, failed(err))
		todo.Calls = nil
	} else {
		client.Microversion = found.Version
	}
	documents := *client // whose paths begin above `/v1`
	client.ResourceBase = client.Endpoint + "v1/"
	calls := map[string]func() (interface{}, error){
		"range": func() (interface{}, error) {
			found, err := apiversions.Get(&documents, "v1").Extract()
			if err != nil {
				return nil, err
			}
			return []string{found.MinVersion, found.Version}, nil
		},
		"nodes": func() (interface{}, error) {
			pages, err := nodes.List(client, nodes.ListOpts{}).AllPages()
			if err != nil {
				return nil, err
			}
			found, err := nodes.ExtractNodes(pages)
			return len(found), err
		},
	}
	for _, name := range todo.Calls {
		if value, err := calls[name](); err != nil {
			results = append(results, failed(err))
		} else {
			results = append(results, result{"value": value})
		}
	}
	json.NewEncoder(os.Stdout).Encode(result{"results": results, "version": client.Microversion})
}
